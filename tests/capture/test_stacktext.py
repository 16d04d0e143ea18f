"""The written stack text is the one that CPython prints, apart from the markers below source lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_error_hygiene.capture import Limits, capture, format_node
from otel_error_hygiene.model import ExceptionNode

_MARKERS = re.compile(r"^[ |]*[~^][ ~^]*$")


EMPTY: dict[str, int] = {}


class OwnError(Exception):
    """An error of this module, so that its name has one."""


def raised(raising: Callable[[], object]) -> Exception:
    """Return what a function raises, with its traceback."""
    try:
        raising()
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def without_markers(text: str) -> str:
    """Leave out the lines of carets and tildes that Python 3.11 and later write below a source line."""
    return "".join(line for line in text.splitlines(keepends=True) if not _MARKERS.match(line.rstrip("\n")))


def boom(text: str = "boom") -> None:
    """Raise."""
    raise OwnError(text)


def plain() -> None:
    """Raise one exception."""
    boom()


def empty_message() -> None:
    """Raise an exception without a message."""
    raise TimeoutError


def many_lines() -> None:
    """Raise a message of several lines."""
    boom("first\n  second\n\nlast")


def caused() -> None:
    """Raise from a cause, three deep."""
    try:
        try:
            boom("root")
        except OwnError as root:
            raise ConnectionError("middle") from root
    except ConnectionError as middle:
        raise RuntimeError("top") from middle


def in_context() -> None:
    """Raise while another is handled."""
    try:
        boom("first")
    except OwnError:
        EMPTY["missing"]


def suppressed() -> None:
    """Raise from None."""
    try:
        boom("hidden")
    except OwnError:
        raise ValueError("shown") from None


def mixed() -> None:
    """Raise with a cause whose own context shows."""
    try:
        in_context()
    except KeyError as error:
        raise OwnError("top") from error


def noted() -> None:
    """Raise with notes."""
    error = OwnError("with notes")
    error.add_note("one note")
    error.add_note("another\nof two lines")
    error.add_note("")
    raise error


def recursive(depth: int = 30) -> None:
    """Raise deep in a recursion, whose repeats Python leaves out."""
    if not depth:
        boom("deep")
    recursive(depth - 1)


def group() -> None:
    """Raise a group of raised exceptions, and one that never was."""
    raise ExceptionGroup("several", [raised(plain), raised(caused), ValueError("never raised")])


def group_of_groups() -> None:
    """Raise a group whose first, middle and last members are groups."""
    first = ExceptionGroup("first", [ValueError(1)])
    middle = raised(group)
    last = ExceptionGroup("last", [TypeError(2), ExceptionGroup("innermost", [KeyError("k"), ValueError("a\nb")])])
    raise BaseExceptionGroup("outer", [first, OSError("between"), middle, last])


def group_from_cause() -> None:
    """Raise a group from a cause, and an exception from the group."""
    try:
        try:
            boom("root")
        except OwnError as root:
            raise ExceptionGroup("grouped", [ValueError("member")]) from root
    except ExceptionGroup as error:
        raise RuntimeError("top") from error


def group_in_context() -> None:
    """Raise a group while another is handled, with notes on the group and on its member."""
    member = ValueError("member")
    member.add_note("of the member\nin two lines")
    error = ExceptionGroup("grouped", [member, raised(group_from_cause)])
    error.add_note("of the group")
    try:
        boom("first")
    except OwnError:
        raise error  # noqa: B904  (its context is the point)


def group_of_chains() -> None:
    """Raise a group in which a member has a group as its cause."""
    raise ExceptionGroup("outer", [raised(group_from_cause), raised(in_context)])


def never_raised_group() -> None:
    """Raise from a group that has no traceback."""
    raise OwnError("top") from ExceptionGroup("bare", [ValueError(1), ExceptionGroup("inner", [ValueError(2)])])


SCENES = [
    plain, empty_message, many_lines, caused, in_context, suppressed, mixed, noted, recursive, group,
    group_of_groups, group_from_cause, group_in_context, group_of_chains, never_raised_group,
]  # fmt: skip


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_text_equals_that_of_cpython(scene: Callable[[], None]) -> None:
    """Chains, contexts, groups, notes and repeats are laid out as ``traceback.format_exception`` does."""
    error = raised(scene)
    assert without_markers("".join(traceback.format_exception(error))) == format_node(capture(error)[0])


def test_text_survives_the_record() -> None:
    """A tree that went through JSON gives the same text, in any process that has the source files."""
    error = raised(group_in_context)
    node = capture(error)[0]
    again = ExceptionNode.model_validate_json(node.model_dump_json())
    assert format_node(node) == format_node(again)


def test_types_of_a_script_are_written_without_a_module(tmp_path: Path) -> None:
    """``__main__.Oops`` is ``Oops`` in a traceback; the captured type keeps the module, as OpenTelemetry writes it."""
    script = tmp_path / "agent.py"
    script.write_text(
        "import traceback\n"
        "from otel_error_hygiene.capture import capture, format_node\n"
        "class Oops(Exception): pass\n"
        "try:\n"
        "    raise Oops('x')\n"
        "except Oops as error:\n"
        "    node = capture(error)[0]\n"
        "    assert node.type == '__main__.Oops', node.type\n"
        "    assert format_node(node) == ''.join(traceback.format_exception(error)), format_node(node)\n",
        encoding="utf-8",
    )
    root = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, script], check=True, timeout=60, env={**os.environ, "PYTHONPATH": root})


def test_a_syntax_error_keeps_its_type_and_message() -> None:
    """The offending line of a ``SyntaxError`` is not kept; its message names the file and the line."""
    error = raised(lambda: compile("a b", "<agent>", "exec"))
    assert "SyntaxError: invalid syntax (<agent>, line 1)" == format_node(capture(error)[0]).splitlines()[-1]


def test_frames_that_were_left_out_are_counted() -> None:
    """Where the bound bites, the outermost frames and the raising ones stay, and the gap says its size."""
    node, truncated = capture(raised(lambda: recursive(30)), Limits(max_frames=6))
    assert truncated
    text = format_node(node)
    assert f"  [{node.frames_dropped} frames left out]\n" in text
    assert "in boom\n    raise OwnError(text)\n" in text


def test_source_of_a_file_that_is_no_plain_file_is_left_out(tmp_path: Path) -> None:
    """A frame's file name may be anything: a device or a folder is not read."""
    for name in ("/dev/zero", str(tmp_path), "<string>", "\0", "", "no/such/file.py"):
        node = ExceptionNode(type="E", frames=((name, 1, "f"),))  # type: ignore[arg-type]
        assert f'Traceback (most recent call last):\n  File "{name}", line 1, in f\nE\n' == format_node(node)


def test_a_changed_source_file_is_read_again(tmp_path: Path) -> None:
    """Source lines come from the files as they are now."""
    path = tmp_path / "module.py"
    node = ExceptionNode(type="E", frames=((str(path), 1, "f"),))  # type: ignore[arg-type]
    path.write_text("old = 1\n", encoding="utf-8")
    assert "    old = 1\n" in format_node(node)
    path.write_text("newer = 22\n", encoding="utf-8")
    assert "    newer = 22\n" in format_node(node)
