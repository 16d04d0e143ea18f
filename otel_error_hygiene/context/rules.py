"""The rules of a buffer: bounds of a rendering, what a success resolves, when to escalate, how long a line lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ..errors import ConfigurationError
from ..model import MAX_LINE_CHARS
from ..settings import Settings
from .policies import Policy, any_later_success, policy_of


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for all buffers of a processor; the settings of the same names say what each means.

    Raises:
        ConfigurationError: A bound is too small for a single line, a limit is out of its range, or there is no such
            policy.
    """

    max_lines: int = 20
    """Lines of one rendering, at least 1."""
    max_chars: int = 4000
    """Characters of one rendering, at least one line's 200."""
    recovered_note: bool = True
    """Say for one turn that shown errors are resolved."""
    prune_policy: str | Policy = any_later_success
    """A name of ``policies.POLICIES``, or a callable: what a success resolves of what the model knew."""
    escalate_after: int = 3
    """Identical failures, at least 2; 0: never."""
    escalate_transient_after: int = 6
    """The same for connectivity, rate_limit and upstream."""
    max_age_turns: int = 20
    """Turns that a line lives, at least 1."""
    max_age_seconds: float = 3600.0
    """Seconds that a line lives, above 0."""

    def __post_init__(self) -> None:
        if self.max_lines < 1:
            raise ConfigurationError(f'"max_lines" is {self.max_lines}; it must be at least 1')
        if self.max_chars < MAX_LINE_CHARS:
            raise ConfigurationError(f'"max_chars" is {self.max_chars}; it must be at least {MAX_LINE_CHARS}, one line')
        for name in ("escalate_after", "escalate_transient_after"):
            limit = getattr(self, name)
            if limit < 0 or limit == 1:
                raise ConfigurationError(f'"{name}" is {limit}; it must be at least 2, or 0 for never')
        if self.max_age_turns < 1:
            raise ConfigurationError(f'"max_age_turns" is {self.max_age_turns}; it must be at least 1')
        if not self.max_age_seconds > 0:
            raise ConfigurationError(f'"max_age_seconds" is {self.max_age_seconds}; it must be more than 0')
        policy_of(self.prune_policy)

    @property
    def policy(self) -> Policy:
        """The policy itself."""
        return policy_of(self.prune_policy)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Take the rules from settings."""
        return cls(
            max_lines=settings.max_lines,
            max_chars=settings.max_chars,
            recovered_note=settings.recovered_note,
            prune_policy=settings.prune_policy,
            escalate_after=settings.escalate_after,
            escalate_transient_after=settings.escalate_transient_after,
            max_age_turns=settings.max_age_turns,
            max_age_seconds=settings.max_age_seconds,
        )
