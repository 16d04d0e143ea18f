"""Policies: which of the failures that the model knew of does a success resolve?

A policy is asked of each pending failure that had ended before the last turn boundary that precedes the
start of the succeeding call. The failure of the same call (by its id, or by tool and known arguments) is
resolved without asking. Choose one by name, or give a callable::

    Settings(prune_policy="same_tool")                    # or OTEL_ERROR_HYGIENE_PRUNE_POLICY=same_tool
    Settings(prune_policy=lambda failure, success: failure.summary.tool.startswith("cache_"))

A callable of one's own runs on the thread of the tool that succeeded, once for each such failure, so it must
be quick. When it raises, the fault is counted and logged once, and the default policy answers instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from .._guard import fault
from ..errors import ConfigurationError
from ..model import Recoverable
from .entry import Told


class Success(NamedTuple):
    """The call that succeeded, as a policy is told of it."""

    tool: str
    arguments: str | None
    """Digest of its canonical arguments, the same for the same arguments; None when unknown."""
    call_id: str | None
    start_ns: int
    """When the call started, nanoseconds since the epoch."""


Policy = Callable[[Told, Success], bool]
"""Return True when the success resolves the failure. The failure's line goes when all failures of it are resolved."""


def any_later_success(failure: Told, success: Success) -> bool:  # noqa: ARG001  (the signature of a policy)
    """Let any success of any tool resolve it: what the agent did next has worked. The default."""
    return True


def same_tool(failure: Told, success: Success) -> bool:
    """Let only a success of the tool that had failed resolve it."""
    return failure.tool == success.tool


def same_call(failure: Told, success: Success) -> bool:
    """Let only a success of the same tool with the same arguments resolve it."""
    return failure.arguments is not None and (failure.tool, failure.arguments) == success[:2]


def keep_unrecoverable(failure: Told, success: Success) -> bool:  # noqa: ARG001
    """Let any success resolve it, unless no act of the agent can help, as with missing credentials."""
    return failure.summary.recoverable is not Recoverable.NO


def never(failure: Told, success: Success) -> bool:  # noqa: ARG001
    """Let only a success of its own call resolve it; else its line goes by age, or by ``clear()``."""
    return False


POLICIES: Final[Mapping[str, Policy]] = {
    policy.__name__: policy for policy in (any_later_success, same_tool, same_call, keep_unrecoverable, never)
}
"""The ready-made ones by name, the default first."""


def policy_of(chosen: str | Policy) -> Policy:
    """Return a policy by its name; a callable as it is.

    Raises:
        ConfigurationError: It is neither a callable nor one of the names.
    """
    if callable(chosen):
        return chosen
    try:
        return POLICIES[chosen]
    except (KeyError, TypeError):
        names = ", ".join(map(repr, POLICIES))
        raise ConfigurationError(f'"prune_policy" is {chosen!r}; it must be one of {names}, or a callable') from None


def resolves(policy: Policy, failure: Told, success: Success) -> bool:
    """Ask a policy; the default answers for one that raises."""
    try:
        return bool(policy(failure, success))
    except Exception as error:
        fault("prune_policy", error)
        return any_later_success(failure, success)


class Lanes(NamedTuple):
    """What keeps a ready-made policy cheap: of the failures that it would keep, a success looks at none.

    Lanes narrow what is asked, the policy decides.
    """

    of_failure: Callable[[Told], str | None]
    """The lane in which a failure waits; None: only a success of its own call finds it."""
    of_success: Callable[[Success], str]
    """The lane that a success looks through."""


_ONE: Final = Lanes(lambda _: "", lambda _: "")
_NONE: Final = Lanes(lambda _: None, lambda _: "")
_LANES: Final[Mapping[Policy, Lanes]] = {
    same_tool: Lanes(lambda failure: failure.tool, lambda success: success.tool),
    same_call: _NONE,
    keep_unrecoverable: Lanes(
        lambda failure: None if failure.summary.recoverable is Recoverable.NO else "", lambda _: ""
    ),
    never: _NONE,
}


def lanes_of(policy: Policy) -> Lanes:
    """Return the lanes of a policy; of one that is not ready-made, one for all."""
    try:
        return _LANES.get(policy, _ONE)
    except TypeError:  # a callable that cannot be hashed
        return _ONE
