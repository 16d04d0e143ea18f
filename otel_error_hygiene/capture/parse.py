"""Read a recorded traceback back into a tree: chain, groups, messages and frames, as ``capture`` makes them.

Reads what Python 3.11 to 3.13 write, with the blank lines, margins and cuts that recorders add. What a text does not
tell: where a message ends and its notes begin (the notes stay in the message, unless the message is known), blank
lines at the end of a message, the module ``__main__``, and whether a message that is laid out like a traceback is one.
No library on PyPI does it: see docs/decisions.md, "Our own reader of stack texts".
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .._guard import fault
from ..model import ExceptionNode
from .tree import DEFAULT_LIMITS, HEAD_FRAMES, MAX_NOTES, Limits

HEADER: Final = "Traceback (most recent call last):"
_CAUSE: Final = "The above exception was the direct cause of the following exception:"
_CONTEXT: Final = "During handling of the above exception, another exception occurred:"
_GROUP_HEADER: Final = "  + Exception Group " + HEADER
_RULE: Final = "  +-+------"
_MAX_CHARS: Final = 262_144
"""Characters that are read: of a longer text the first half, where the root cause stands, and the last."""
_MAX_DEPTH: Final = 16
"""Groups within groups; Python itself writes ten."""
_FRAME: Final = re.compile(r'  File "(.*)", line (\d{1,9})(?:, in (.+))?')
_REPEATED: Final = re.compile(r"  \[Previous line repeated (\d{1,9}) more times?\]")
_LEFT_OUT: Final = re.compile(r"  \[(\d{1,9}) frames left out\]")
_NAME: Final = r"(?:[^\W\d]\w*|<\w+>)(?:\.(?:[^\W\d]\w*|<\w+>)){0,20}"
_ENDING: Final = re.compile(r"([^\s:]{1,200})(?:: ?(.*))?$")
_HEADLESS: Final = re.compile(rf"(?=\S*[A-Z.]){_NAME}(?:: |$)")
"""How an exception that was never raised begins; stricter, as nothing before it says that one comes."""
_CUT_FRAME: Final = re.compile(r'^.{0,500}", line \d{1,9}, in \S')
_MARGIN: Final = re.compile(r"((?:  ){1,16})[|+] ")


class _Block(NamedTuple):
    """One exception of a chain, its cause not yet attached."""

    type: str
    message: str
    frames: list[tuple[str, int, str]]
    dropped: int
    group: tuple[ExceptionNode, ...]


class _Reader:
    """One pass over the lines; the depth says how many margins of groups stand before a line."""

    def __init__(self, lines: list[str], limits: Limits) -> None:
        self._lines = lines
        self._at = 0
        self._limits = limits
        self._left = max(limits.max_exceptions, 1)

    def _line(self, depth: int) -> str | None:
        """Return the line here without its margin, None where it does not belong to the depth."""
        if not depth:
            return self._lines[self._at] if self._at < len(self._lines) else None
        margin = f"{'  ' * depth}|"
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(margin):
                return line[len(margin) + 1 :]
            if line and not line.isspace():
                return None
            self._at += 1  # inside a group Python writes no line without a margin
        return None

    def chain(self, depth: int) -> ExceptionNode | None:
        """Read exceptions and what links them, the root first; return the outermost."""
        blocks: list[tuple[_Block, bool]] = []
        by_cause = False
        while True:
            block = self._group_or_single(depth)
            if block is not None:
                blocks.append((block, by_cause))
            while (line := self._line(depth)) is not None and (link := line.rstrip()) not in (_CAUSE, _CONTEXT):
                self._at += 1
            if line is None:
                break
            self._at += 1
            by_cause = link == _CAUSE
        return self._linked(blocks)

    def _linked(self, blocks: list[tuple[_Block, bool]]) -> ExceptionNode | None:
        room = max(self._left, 1)
        if len(blocks) > room:
            inner = room - room // 2
            blocks = blocks[:inner] + blocks[len(blocks) - room // 2 :]
        self._left -= len(blocks)
        node: ExceptionNode | None = None
        for block, by_cause in blocks:
            cause, context = (node, None) if by_cause else (None, node)
            node = self._node(block, cause, context)
        return node

    def _node(self, block: _Block, cause: ExceptionNode | None, context: ExceptionNode | None) -> ExceptionNode:
        most = self._limits.max_frames
        frames, dropped = block.frames, block.dropped
        if not most:
            frames, dropped = [], 0
        elif (excess := len(frames) - most) > 0:
            head = min(HEAD_FRAMES, most // 2)
            frames, dropped = frames[:head] + frames[head + excess :], dropped + excess
        return ExceptionNode.made(
            {
                "type": block.type or "Exception",
                "class_names": (),
                "message": block.message[: self._limits.max_message_chars],
                "notes": (),
                "frames": tuple(frames),
                "frames_dropped": dropped,
                "facts": {},
                "cause": cause,
                "context": context,
                "group": block.group,
            }
        )

    def _group_or_single(self, depth: int) -> _Block | None:
        while (line := self._line(depth)) is not None and not line.strip():
            self._at += 1
        if line is None:
            return None
        if not depth and line.startswith(("  + ", "  | ")):
            return self._block(1)
        if not depth and not self._at and (found := _MARGIN.match(line)):
            return self._block(len(found[1]) // 2)  # the head was cut off, deep in a group
        return self._block(depth)

    def _block(self, depth: int) -> _Block | None:
        if depth == 1 and self._lines[self._at].startswith(_GROUP_HEADER):
            self._at += 1  # the one line of a group whose margin is another
        frames, dropped, syntax = self._stack(depth)
        line = self._line(depth)
        if line is None or (link := line.rstrip()) == _CAUSE or link == _CONTEXT:
            # The end was cut off, or never came.
            return _Block("", "", frames, dropped, ()) if frames else None
        self._at += 1
        found = _ENDING.match(line)
        kind, message = (found[1], found[2] or "") if found else ("", line)
        more = self._message(depth)
        if more:
            message = "\n".join((message, *more)).rstrip("\n")
        if syntax is not None:
            message += f" ({syntax[0].replace(chr(92), '/').rpartition('/')[2]}, line {syntax[1]})"
        group = self._members(depth) if depth else ()
        return _Block(kind, message, frames, dropped, group)

    def _stack(self, depth: int) -> tuple[list[tuple[str, int, str]], int, tuple[str, int] | None]:
        """Read the frames; source lines and the marks below them are passed over."""
        frames: list[tuple[str, int, str]] = []
        dropped, syntax = 0, None
        while (line := self._line(depth)) is not None:
            if line.startswith("    "):
                pass  # half of all lines
            elif not line.startswith("  "):
                if line and not line.isspace() and (frames or not line.endswith(HEADER)):
                    break
            elif line.startswith("  ["):
                dropped += self._gap(line, frames)
            elif found := _FRAME.match(line):
                if found[3] is not None:
                    frames.append((found[1], int(found[2]), found[3]))
                else:
                    syntax = found[1], int(found[2])  # where a SyntaxError is, which is no frame
            self._at += 1
        return frames, dropped, syntax

    def _gap(self, line: str, frames: list[tuple[str, int, str]]) -> int:
        """Put elided repeats back, as many as there is room for; return how many frames stay left out."""
        if (found := _REPEATED.match(line)) and frames:
            repeated, room = int(found[1]), self._limits.max_frames
            frames += frames[-1:] * min(repeated, room)
            return max(repeated - room, 0)
        found = _LEFT_OUT.match(line)
        return int(found[1]) if found else 0

    def _message(self, depth: int) -> list[str]:
        """Read the further lines of a message, and the notes."""
        more: list[str] = []
        size = 0
        while (line := self._line(depth)) is not None and line.rstrip() not in (_CAUSE, _CONTEXT):
            if size <= self._limits.max_message_chars:
                more.append(line)
                size += len(line) + 1
            self._at += 1
        return more

    def _members(self, depth: int) -> tuple[ExceptionNode, ...]:
        """Read the members of a group, whose first rule may stand here."""
        first, rule = f"{'  ' * depth}+-+-", f"{'  ' * (depth + 1)}+-"
        members: list[ExceptionNode] = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if not (line.startswith(rule) or (line.startswith(first) and not members)):
                if line.strip() or not members:
                    break
                self._at += 1
                continue
            self._at += 1
            title = line.strip(" +-")
            if not title:
                break  # the last rule
            if title == "..." or depth >= _MAX_DEPTH or self._left <= 0:
                self._pass_over(depth + 1)
            elif (member := self.chain(depth + 1)) is not None:
                members.append(member)
        return tuple(members)

    def _pass_over(self, depth: int) -> None:
        margin, deeper = f"{'  ' * depth}|", "  " * (depth + 1)
        while self._at < len(self._lines) and self._lines[self._at].startswith((margin, deeper)):
            self._at += 1


def _lines_of(text: str) -> list[str] | None:
    """Return the lines from the first exception on; None when there is no traceback."""
    if len(text) > _MAX_CHARS:
        text = f"{text[: _MAX_CHARS // 2]}\n{text[len(text) - _MAX_CHARS // 2 :]}"
    headed = HEADER in text
    if not headed and '", line ' not in text and _CAUSE not in text and _CONTEXT not in text and _RULE not in text:
        return None
    lines = text.split("\n")
    if f"{HEADER}\r\n" in text or (not headed and "\r\n" in text):
        lines = [line.removesuffix("\r") for line in lines]
    grouped = _RULE in text
    for index, line in enumerate(lines):
        bare = line.lstrip(" |")
        if line.endswith(HEADER):
            # What stands before it is not Python's.
            first = _GROUP_HEADER if line.endswith(_GROUP_HEADER) else HEADER
            return [first, *lines[index + 1 :]]
        if bare.startswith('File "') or (grouped and line.startswith("  | ") and _HEADLESS.match(bare)):
            return lines[index:]
        if bare.startswith((_CAUSE, _CONTEXT)):
            start = next((i for i in range(index) if _HEADLESS.match(lines[i].lstrip(" |"))), index)
            return lines[start:]
        if not headed and not index and _CUT_FRAME.match(line):
            return lines[1:]
    return None


def parse_stack(text: str, limits: Limits = DEFAULT_LIMITS, *, message: str | None = None) -> ExceptionNode | None:
    """Read a traceback.

    Args:
        text: What a recorder kept: a traceback, whole or cut at either end, with or without words before it.
        limits: Bounds of the tree; ``max_frames=0`` reads no frames.
        message: The message of the outermost exception, where it is known: what follows it are its notes.

    Returns:
        The outermost exception, with what led to it, as ``capture`` would give it, but without bases and facts; its
        type is ``"Exception"`` where the text ends before it. None when there is no traceback. Never raises.
    """
    try:
        lines = _lines_of(text)
        node = None if lines is None else _Reader(lines, limits).chain(0)
    except Exception as failure:  # a text may be anything
        fault("capture.parse", failure)
        return None
    if node is None or message is None or not node.message.startswith(f"{message}\n"):
        return node
    notes = node.message[len(message) + 1 :].split("\n")
    return node.model_copy(update={"message": message, "notes": tuple(notes[:MAX_NOTES])})


def holds_stack(text: str) -> bool:
    """Tell whether a text has the first line of a traceback in it."""
    return HEADER in text


def unfolded(kind: str | None, message: str, limits: Limits = DEFAULT_LIMITS) -> ExceptionNode | None:
    """Read a message that holds a traceback, as some recorders and remotes write it.

    Args:
        kind: Type of the exception whose message it is; None when nobody told.
        message: The message.
        limits: Bounds of the tree.

    Returns:
        The exception of the traceback when nothing but it, its repr or its message stands before it, or the type is
        unknown; else the outer exception, with the words before the traceback as message and the inner as cause. None
        when the message holds no traceback.
    """
    before, found, _ = message.partition(HEADER)
    if not found or (inner := parse_stack(message, limits)) is None:
        return None
    said = before.removesuffix("Exception Group ").rstrip(" +").strip("\n\"' ")
    name = inner.type.rpartition(".")[2]
    if kind is None or not said or said == inner.message or said.startswith((f"{name}(", f"{inner.type}: ")):
        return inner
    return ExceptionNode.model_construct(type=kind, message=said, cause=inner)
