"""From a live exception to a tree of nodes: chain, groups, notes, frames, typed facts.

Runs on the tool's thread, so frames are kept as file, line and function; their source lines are
looked up by whoever writes the text (``stacktext``).
"""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple

from .._guard import fault
from ..model import ExceptionNode, Frame
from .facts import facts_of, inner_of

_HEAD_FRAMES = 10
_MAX_NOTES = 20


class Limits(NamedTuple):
    """Bounds of one capture."""

    max_frames: int = 100
    max_exceptions: int = 32
    max_message_chars: int = 32_768


DEFAULT_LIMITS = Limits()


class _Walk:
    """State of one walk: what was seen (cycles end), how many nodes are left, whether anything was cut."""

    __slots__ = ("left", "limits", "seen", "truncated")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.left = limits.max_exceptions
        self.seen: set[int] = set()
        self.truncated = False


def capture(error: BaseException, limits: Limits = DEFAULT_LIMITS) -> tuple[ExceptionNode, bool]:
    """Walk an exception into a tree.

    Args:
        error: The live exception, with its traceback.
        limits: Bounds of the walk.

    Returns:
        The tree, and whether anything was cut to the bounds. Never raises: what cannot be read is named.
    """
    walk = _Walk(limits)
    node = _node(error, walk)
    assert node is not None
    return node, walk.truncated


def _node(error: BaseException | None, walk: _Walk) -> ExceptionNode | None:
    if error is None or id(error) in walk.seen:
        return None
    if walk.left <= 0:
        walk.truncated = True
        return None
    walk.left -= 1
    walk.seen.add(id(error))
    frames, dropped = _frames(error.__traceback__, walk.limits.max_frames)
    message = _cut(safe_str(error), walk)
    cause = _node(error.__cause__ or inner_of(error), walk)
    context = None if error.__suppress_context__ or cause is not None else _node(error.__context__, walk)
    members: tuple[ExceptionNode, ...] = ()
    if isinstance(error, BaseExceptionGroup):
        members = tuple(
            node for member in error.exceptions[: walk.left + 1] if (node := _node(member, walk)) is not None
        )
    kind = type(error)
    # Without validation: our own values, on the tool's thread.
    return ExceptionNode.model_construct(
        type=qualified_name(kind),
        class_names=_mro(kind),
        message=message,
        notes=_notes(error, walk),
        frames=frames,
        frames_dropped=dropped,
        facts=facts_of(error),
        cause=cause,
        context=context,
        group=members,
    )


def qualified_name(kind: type) -> str:
    """Return ``module.qualname``; builtins bare, as OpenTelemetry writes ``exception.type``."""
    try:
        module, name = kind.__module__, kind.__qualname__
    except Exception:  # a metaclass may do anything
        return "Exception"
    return f"{module}.{name}" if module and module != "builtins" else name


def safe_str(error: BaseException) -> str:
    """Return ``str(error)``; where that raises, say so in its place."""
    try:
        return str(error)
    except Exception as failure:
        return f"<unprintable: {type(failure).__name__} in __str__>"


def _mro(kind: type) -> tuple[str, ...]:
    return tuple([qualified_name(base) for base in kind.__mro__[:-1]])


def _cut(text: str, walk: _Walk) -> str:
    bound = walk.limits.max_message_chars
    if len(text) <= bound:
        return text
    walk.truncated = True
    return f"{text[: bound - 40]}… ({len(text)} characters in all)"


def _notes(error: BaseException, walk: _Walk) -> tuple[str, ...]:
    try:
        notes = getattr(error, "__notes__", None)
        if not notes:
            return ()
        return tuple(_cut(note if isinstance(note, str) else repr(note), walk) for note in notes[:_MAX_NOTES])
    except Exception as failure:
        return (f"<unreadable notes: {type(failure).__name__}>",)


def _frames(traceback: TracebackType | None, max_frames: int) -> tuple[tuple[Frame, ...], int]:
    frames: list[tuple[str, int, str]] = []
    append = frames.append
    try:
        while traceback is not None:
            code = traceback.tb_frame.f_code
            append((code.co_filename, traceback.tb_lineno or 0, code.co_name))
            traceback = traceback.tb_next
    except Exception as failure:
        fault("capture.frames", failure)
    dropped = len(frames) - max_frames
    if dropped > 0:
        head = min(_HEAD_FRAMES, max_frames // 2)
        frames = frames[:head] + frames[head + dropped :]
    # Plain tuples in the order of Frame: building named ones costs ten times as much; reading back makes them.
    return tuple(frames), max(dropped, 0)  # type: ignore[arg-type]
