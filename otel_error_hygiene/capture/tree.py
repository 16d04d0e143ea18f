"""From a live exception to a tree of nodes: chain, groups, notes, frames, typed facts.

Runs on the tool's thread, so frames are kept as file, line and function; their source lines are
looked up by whoever writes the text (``stacktext``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple

from .._guard import fault
from ..model import ExceptionNode, Frame
from .facts import facts_of, inner_of

HEAD_FRAMES = 10
MAX_NOTES = 20
_MAX_NAME_CHARS = 200
_MAX_BASES = 32
_MAX_DEPTH = 80
"""Trees are read and written recursively, and a tool may fail deep in its own recursion."""
_MAX_LINKS = 10_000


class Limits(NamedTuple):
    """Bounds of one capture."""

    max_frames: int = 100
    max_exceptions: int = 32
    """Exceptions of one tree. Of a longer chain the outermost half and the half next to the root stay."""
    max_message_chars: int = 32_768


DEFAULT_LIMITS = Limits()


class _Walk:
    """State of one walk: what was seen (cycles end), how many nodes are left, whether anything was cut."""

    __slots__ = ("left", "limits", "seen", "truncated")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.left = max(limits.max_exceptions, 1)
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
    try:
        return _chain(error, walk, 0), walk.truncated
    except Exception as failure:  # no stack is left, or a class does what nobody thought of
        if not isinstance(failure, RecursionError):
            fault("capture", failure)
        node = ExceptionNode.model_construct(type=qualified_name(type(error)), message=_cut(safe_str(error), walk))
        return node, True


def _chain(error: BaseException, walk: _Walk, depth: int) -> ExceptionNode:
    """Make the nodes of a chain, the root first; iterative, for chains are longer than recursion allows."""
    links = [(error, False)]
    walk.seen.add(id(error))
    while (before := _before(links[-1][0], walk)) is not None and len(links) < _MAX_LINKS:
        walk.seen.add(id(before[0]))
        links.append(before)
    room = max(min(walk.left, _MAX_DEPTH - depth), 1)
    if len(links) > room:
        walk.truncated = True
        outer = room // 2
        links = links[:outer] + links[len(links) - (room - outer) :]
    walk.left -= len(links)
    node: ExceptionNode | None = None
    is_cause = False
    for index in reversed(range(len(links))):
        step, led_by_cause = links[index]
        cause, context = (node, None) if is_cause else (None, node)
        node = _node(step, walk, depth + index, cause=cause, context=context)
        is_cause = led_by_cause
    assert node is not None
    return node


def _before(error: BaseException, walk: _Walk) -> tuple[BaseException, bool] | None:
    """Return what led to an exception, and whether it is its cause, as a traceback shows it; None at the root."""
    cause = _read(error, "__cause__")
    if cause is None:
        cause = inner_of(error)
    if isinstance(cause, BaseException) and id(cause) not in walk.seen:
        return cause, True
    context = _read(error, "__context__")
    if isinstance(context, BaseException) and not _read(error, "__suppress_context__") and id(context) not in walk.seen:
        return context, False
    return None


def _node(
    error: BaseException, walk: _Walk, depth: int, *, cause: ExceptionNode | None, context: ExceptionNode | None
) -> ExceptionNode:
    kind: Any = type(error)
    frames, dropped = _frames(_read(error, "__traceback__"), walk.limits.max_frames)
    if frames and dropped:  # asked for none: they stand elsewhere
        walk.truncated = True
    return ExceptionNode.made(
        {
            "type": qualified_name(kind),
            "class_names": _class_names(kind),
            "message": _cut(safe_str(error), walk),
            "notes": _notes(error, walk),
            "frames": frames,
            "frames_dropped": dropped,
            "facts": facts_of(error),
            "cause": cause,
            "context": context,
            "group": _members(error, walk, depth + 2) if issubclass(kind, BaseExceptionGroup) else (),
        }
    )


def _members(error: BaseException, walk: _Walk, depth: int) -> tuple[ExceptionNode, ...]:
    members: list[ExceptionNode] = []
    found = _read(error, "exceptions")
    for member in found if isinstance(found, tuple) else ():
        if isinstance(member, BaseException) and id(member) not in walk.seen:
            if walk.left <= 0 or depth >= _MAX_DEPTH:
                walk.truncated = True
                break
            members.append(_chain(member, walk, depth))
    return tuple(members)


def qualified_name(kind: type) -> str:
    """Return ``module.qualname``, at most 200 characters; builtins bare, as OpenTelemetry writes ``exception.type``."""
    try:
        module, name = kind.__module__, kind.__qualname__
        return (f"{module}.{name}" if module and module != "builtins" else str(name))[-_MAX_NAME_CHARS:]
    except Exception:  # a metaclass may do anything
        return "Exception"


def safe_str(error: BaseException) -> str:
    """Return ``str(error)``; where that raises, say so in its place."""
    return _text_of(str, error, "__str__")


def _text_of(write: Callable[[Any], str], value: Any, name: str) -> str:
    try:
        return str.__str__(write(value))  # what was returned may be of a subclass
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # even an exit, for nobody asked the message to end the program
        return f"<unprintable: {qualified_name(type(failure))} in {name}>"


def _read(error: BaseException, name: str) -> Any:
    try:
        return getattr(error, name, None)
    except Exception:  # a property may do anything
        return None


@lru_cache(maxsize=512)
def _names_of_bases(kind: Any) -> tuple[str, ...]:
    return tuple([qualified_name(base) for base in kind.__mro__[:-1][:_MAX_BASES]])


def _class_names(kind: Any) -> tuple[str, ...]:
    try:
        return _names_of_bases(kind)
    except Exception:  # a metaclass may do anything
        return ()


def _cut(text: str, walk: _Walk) -> str:
    bound = walk.limits.max_message_chars
    if len(text) <= bound:
        return text
    walk.truncated = True
    return f"{text[: max(bound - 40, 0)]}… ({len(text)} characters in all)"


def _notes(error: BaseException, walk: _Walk) -> tuple[str, ...]:
    notes = _read(error, "__notes__")
    if notes is None:
        return ()
    if not isinstance(notes, Sequence) or isinstance(notes, (str, bytes)):
        return (_cut(_text_of(repr, notes, "__notes__"), walk),)
    try:
        kept = list(notes[:MAX_NOTES])
        walk.truncated |= len(notes) > MAX_NOTES
    except Exception as failure:
        return (f"<unreadable notes: {type(failure).__name__}>",)
    return tuple([_cut(_text_of(str, note, "note"), walk) for note in kept])


def _frames(traceback: TracebackType | None, max_frames: int) -> tuple[tuple[Frame, ...], int]:
    if max_frames == 0:
        return (), 0
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
        head = min(HEAD_FRAMES, max_frames // 2)
        frames = frames[:head] + frames[head + dropped :]
    # Plain tuples in the order of Frame: building named ones costs ten times as much; reading back makes them.
    return tuple(frames), max(dropped, 0)  # type: ignore[arg-type]
