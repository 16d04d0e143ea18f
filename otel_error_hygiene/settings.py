"""Settings: one frozen model, from arguments or from ``OTEL_ERROR_HYGIENE_*`` variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from platformdirs import user_state_path
from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_MIB = 1024 * 1024

PolicyName = Literal["any_later_success", "same_tool", "same_call", "keep_unrecoverable", "never"]
"""The ready-made policies of ``context.policies``."""


def default_store_path() -> Path:
    """Return the folder for state of the user, by the rules of the platform."""
    return user_state_path("otel-error-hygiene", appauthor=False) / "store"


class Settings(BaseSettings):
    """What a user may choose. Each field can be set by ``OTEL_ERROR_HYGIENE_<FIELD>``.

    Raises:
        pydantic.ValidationError: A value is of the wrong type or out of its range; names the field and the value.
    """

    model_config = SettingsConfigDict(env_prefix="OTEL_ERROR_HYGIENE_", frozen=True, extra="forbid")

    store_path: Path = Field(default_factory=default_store_path)
    """Folder of the outbox and the embedded store; made when the first failure is recorded, for the owner only."""
    store_max_bytes: Annotated[int, Field(ge=64 * 1024)] = 256 * _MIB
    """Quota of the whole store on disk, in bytes. Delivered records make room; then new ones are refused, counted."""
    retention_seconds: Annotated[float, Field(gt=0)] = 7 * 24 * 3600
    """How long a record can be recalled, and how long one waits for its backend, in seconds."""
    fsync: bool = False
    """Also survive a power cut: write through to the disk before the line is shown (costs milliseconds per failure)."""
    exit_timeout_millis: Annotated[int, Field(ge=0)] = 1000
    """How long ``shutdown`` may block in all, in milliseconds; what is not delivered by then stays in the store."""
    retry_initial_millis: Annotated[int, Field(gt=0)] = 1000
    """First back-off of the courier, in milliseconds; doubled with jitter at each failure."""
    retry_max_millis: Annotated[int, Field(gt=0)] = 60_000
    """Longest back-off of the courier, in milliseconds. A server's Retry-After is obeyed beside it."""
    max_lines: Annotated[int, Field(ge=1)] = 20
    """Lines that one rendering shows; the newest are kept."""
    max_chars: Annotated[int, Field(ge=200)] = 4000
    """Characters that one rendering shows; the newest lines are kept."""
    recovered_note: bool = True
    """Say for one turn that errors which the model had been shown are resolved."""
    prune_policy: PolicyName | Callable[..., Any] = "any_later_success"
    """Which of the failures that the model knew of a success resolves: a name of ``context.policies``, or, in code, a
    callable that is given the failure and the success. The failure of the same call is always resolved."""
    escalate_after: Annotated[int, Field(ge=0)] = 3
    """Identical failures, with no success between, at which the line says to stop; at least 2, or 0 for never. Once
    the model knows of it, they are counted from 1 again."""
    escalate_transient_after: Annotated[int, Field(ge=0)] = 6
    """The same for what may pass by itself: connectivity, rate_limit and upstream."""
    max_age_turns: Annotated[int, Field(ge=1)] = 20
    """How long the model is told of a failure, in turns of the conversation, the one in which it was told included."""
    max_age_seconds: Annotated[float, Field(gt=0)] = 3600
    """How long the model is told of a failure, in seconds; seen to when a turn passes or a tool call ends."""
    max_frames: Annotated[int, Field(ge=4)] = 100
    """Stack frames kept of one exception: the outermost few and the rest from the raising end."""
    max_exceptions: Annotated[int, Field(ge=1)] = 32
    """Exceptions kept of one chain or group."""
    max_message_chars: Annotated[int, Field(ge=100)] = 32_768
    """Characters kept of one exception's message, and of one attribute's text, in the trace."""
    max_stacktrace_chars: Annotated[int, Field(ge=1000)] = 262_144
    """Characters kept of one recorded stack text; its end, where the raising frame is, is kept."""

    @field_validator("prune_policy", mode="before")
    @classmethod
    def _known_policy(cls, value: Any) -> Any:
        names = get_args(PolicyName)
        if not callable(value) and value not in names:
            raise ValueError(
                f'"prune_policy" is {value!r}; it must be one of {", ".join(map(repr, names))}, or a callable'
            )
        return value

    @field_validator("escalate_after", "escalate_transient_after", mode="after")
    @classmethod
    def _not_at_once(cls, value: int) -> int:
        if value == 1:
            raise ValueError("1 would escalate a first failure; it must be at least 2, or 0 for never")
        return value

    @field_validator("store_path", mode="after")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()
