"""A recorded traceback is read back into the tree that the live exception would have given."""

from __future__ import annotations

import gzip
import json
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_error_hygiene.capture import Limits, capture, fingerprint, parse_stack, unfolded
from otel_error_hygiene.model import ExceptionNode
from tests.capture.test_stacktext import SCENES, caused, group_of_groups, many_lines, noted, plain, raised

FOLDER = Path(__file__).parent.parent / "data" / "stacks"
HEADER = "Traceback (most recent call last):"
CAUSE = "The above exception was the direct cause of the following exception:"
Flat = list[tuple[str, str, str, tuple[Any, ...], int]]


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a data file."""
    text = gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def flat(node: ExceptionNode | None, link: str = "") -> Flat:
    """Return a tree as a list of what a text can tell: the notes stand below the message, without blank lines."""
    if node is None:
        return []
    said = "\n".join((node.message, *node.notes)).rstrip("\n")
    found = [(link, node.type, said, tuple(tuple(frame) for frame in node.frames), node.frames_dropped)]
    for member in node.group:
        found += flat(member, "group")
    return found + flat(node.cause, "cause") + flat(node.context, "context")


def text_of(error: BaseException) -> str:
    """Return the text that Python prints."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_tree_of_a_text_is_that_of_the_exception(scene: Callable[[], None]) -> None:
    """Chains, contexts, groups, notes, messages of several lines and elided repeats, frame by frame."""
    error = raised(scene)
    assert flat(capture(error)[0]) == flat(parse_stack(text_of(error)))


WORDS = st.text(st.sampled_from("ab: |+-'\"()^~\u00e9\U0001f600.,"), max_size=12)
MESSAGES = st.lists(WORDS, max_size=3).map("\n".join)
TYPES = st.sampled_from([ValueError, KeyError, OSError, TimeoutError, RuntimeError, StopAsyncIteration])


@st.composite
def exceptions(draw: st.DrawFn, depth: int = 3) -> Exception:
    """Draw a live exception, raised or not, with notes, a cause or a context, and members."""
    error: Exception
    if depth and draw(st.integers(0, 3)) == 0:
        members = draw(st.lists(exceptions(depth=depth - 1), min_size=1, max_size=3))
        error = ExceptionGroup(draw(WORDS), members)
    else:
        error = draw(TYPES)(draw(MESSAGES))
    for note in draw(st.lists(MESSAGES, max_size=2)):
        error.add_note(note)
    before = draw(exceptions(depth=depth - 1)) if depth and draw(st.booleans()) else None
    made = raised(lambda: raise_after(error, before, as_cause=draw(st.booleans())))
    return made if before is not None or draw(st.booleans()) else made.with_traceback(None)


def throw(error: Exception) -> None:
    """Raise an exception."""
    raise error


def raise_after(error: Exception, before: Exception | None, *, as_cause: bool) -> None:
    """Raise an exception, from a cause or while another is handled."""
    if before is None:
        throw(error)
    if as_cause:
        raise error from before
    try:
        throw(before or error)
    except Exception:
        raise error  # noqa: B904  (its context is the point)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(exceptions())
def test_any_raised_exception_is_read_back(error: Exception) -> None:
    """Types, messages, notes, links and frames; the root's own blank lines aside."""
    parsed = parse_stack(text_of(error))
    if parsed is None:  # one that was never raised is a line, no traceback
        assert error.__traceback__ is None
        return
    assert flat(capture(error)[0]) == flat(parsed)


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    """Whatever it is, it gives a tree or None."""
    parse_stack(text)
    unfolded("E", text)
    parse_stack(f"{HEADER}\n{text}")


PIECES = st.sampled_from(
    [
        *(HEADER, f"  + Exception Group {HEADER}", CAUSE, "", "    raise X", "  | ", "  |", "ValueError: x", "a b"),
        *('  File "a.py", line 1, in f', '  File "a.py", line 1', "  [Previous line repeated 999999999 more times]"),
        *("  +-+---------------- 1 ----------------", "    +---------------- 2 ----------------", "    | KeyError: 1"),
        *("    +---------------- ... ----------------", "    +------------------------------------", "  | E: g"),
        *(
            f"    | {HEADER}",
            f"    | {CAUSE}",
            '    |   File "b.py", line 2, in g',
            "    +-+------- 1 -------",
            "\0\ud800",
        ),
    ]
)


@given(st.lists(PIECES, max_size=60))
def test_lines_of_tracebacks_in_any_order_are_survived(lines: list[str]) -> None:
    """And the tree stays within its bounds."""
    node = parse_stack("\n".join(lines), Limits(max_frames=5, max_exceptions=4))
    found = flat(node)
    assert len(found) <= 8
    assert all(len(frames) <= 5 for _, _, _, frames, _ in found)


@given(exceptions(), st.integers(0, 4000))
def test_a_text_that_was_cut_gives_what_is_left(error: Exception, at: int) -> None:
    """Cut at its end or at its head, anywhere: no fault."""
    text = text_of(error)
    parse_stack(text[:at])
    parse_stack(text[-at:])


def test_a_text_cut_at_its_end_keeps_the_root() -> None:
    """The SDK's limit cuts the end, where the outermost exception stands; the causes come first."""
    text = text_of(raised(caused))
    cut = text[: text.rindex('  File "') + 20]
    node = parse_stack(cut)
    assert node is not None
    links = [(link, kind, said) for link, kind, said, _, _ in flat(node)]
    own = "tests.capture.test_stacktext.OwnError"
    assert [("", "Exception", ""), ("cause", "ConnectionError", "middle"), ("cause", own, "root")] == links


def test_a_text_cut_at_its_head_keeps_the_outermost() -> None:
    """Also when the cut goes through the only frame of the root."""
    text = text_of(raised(caused))
    first = text.index('  File "')
    for cut in (first, first + 12, text.index("    raise"), text.index("\ntests.capture") + 1, text.index(CAUSE)):
        found = flat(parse_stack(text[cut:]))
        assert ("", "RuntimeError", "top") == found[0][:3], cut
        assert ("cause", "ConnectionError", "middle") == found[1][:3], cut


def test_a_group_cut_at_its_head_keeps_its_ending() -> None:
    """What is left of the margins tells how deep the text begins."""
    text = text_of(raised(group_of_groups))
    found = flat(parse_stack(text[text.index("  |   File") :]))
    assert flat(capture(raised(group_of_groups))[0])[0][:3] == found[0][:3]
    assert "ValueError" in [kind for _, kind, _, _, _ in found]


@pytest.mark.parametrize("scene", [many_lines, caused, group_of_groups], ids=lambda scene: scene.__name__)
def test_ends_of_lines_and_blank_lines_between_them_do_not_count(scene: Callable[[], None]) -> None:
    """CRLF, and the three line ends with which LangChain joins what Python gives line by line."""
    error = raised(scene)
    expected = flat(capture(error)[0])
    assert expected == flat(parse_stack(text_of(error).replace("\n", "\r\n")))
    assert expected == flat(parse_stack("\n\n".join(traceback.format_exception(error))))


def test_a_syntax_error_is_read_with_its_place() -> None:
    """Its own place is no frame, and stands in its message, as ``str()`` has it."""
    for code in ("a b", "def f(:\n  pass", "  x = 1\n y"):
        error = raised(partial(compile, code, "/srv/agent/<made>.py", "exec"))
        assert flat(capture(error)[0]) == flat(parse_stack(text_of(error)))


def test_notes_are_told_from_a_known_message() -> None:
    """A text alone does not tell where a message ends and its notes begin."""
    text = text_of(raised(noted))
    alone, known = parse_stack(text), parse_stack(text, message="with notes")
    assert alone is not None
    assert known is not None
    assert ("with notes\none note\nanother\nof two lines", ()) == (alone.message, alone.notes)
    assert ("with notes", ("one note", "another", "of two lines")) == (known.message, known.notes)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "\n",
            "ValueError: x",
            "boom",
            "Error: see line 3, in f",
            '{"error": "Traceback"}',
            HEADER,
            f"{HEADER}\n",
        ),
        *("TimeoutError()", "a\n  File x\n", "1 validation error for X\na\n  Field required [type=missing]", "\0" * 9),
        'yaml: while scanning\n  in "<unicode string>", line 3, column 1:\n    a: [',
        "goroutine 1 [running]:\nmain.main()\n\t/srv/main.go:4 +0x1d",
        "java.lang.IllegalStateException: x\n\tat Main.main(Main.java:3)",
    ],
)
def test_what_is_no_traceback_gives_none(text: str) -> None:
    """Messages, prose, and the stacks of other languages."""
    assert parse_stack(text) is None
    assert unfolded("E", text) is None


def test_elided_repeats_are_counted() -> None:
    """What Python left out is there again, or counted as dropped; a count out of all bounds does no harm."""
    frame = '  File "a.py", line 1, in f\n    f()\n'
    text = f"{HEADER}\n{frame * 3}  [Previous line repeated 7 more times]\nRecursionError: deep\n"
    node, hostile = parse_stack(text), parse_stack(text.replace(" 7 ", " 999999999 "))
    assert node is not None
    assert hostile is not None
    assert (10, 0) == (len(node.frames), node.frames_dropped)
    assert (100, 1_000_000_002 - 100) == (len(hostile.frames), hostile.frames_dropped)


def test_bounds_hold() -> None:
    """Of a long chain the outermost half and the half next to the root stay, as in a capture."""
    error = ValueError("0")
    for number in range(1, 60):
        outer = ValueError(str(number))
        outer.__cause__ = error
        error = outer
    limits = Limits(max_exceptions=8, max_frames=0, max_message_chars=100)
    parsed = parse_stack(text_of(error), limits)
    assert [said for _, _, said, _, _ in flat(capture(error, limits)[0])] == [said for _, _, said, _, _ in flat(parsed)]
    long = parse_stack(f"{HEADER}\nValueError: {'x' * 1000}\n", limits)
    assert long is not None
    assert len(long.message) <= 100
    assert (parse_stack(text_of(raised(plain)), limits) or long).frames == ()


@pytest.mark.parametrize(
    "line",
    [
        *(
            "x",
            '  File "',
            '  File "a", line 1, in f',
            "  | ",
            "    +-+-",
            "a.",
            "  |   |   |",
            HEADER,
            CAUSE,
            "\r",
            "A:",
        ),
        *(
            "  +-+---------------- 1 ----------------",
            "  + Exception Group Traceback (most recent call last):",
            "(",
            "  ",
        ),
    ],
)
def test_five_megabytes_of_anything_take_no_time(line: str) -> None:
    """The work is bounded: measured below 30 ms each."""
    text = f"{HEADER}\n" + f"{line}\n" * (5_000_000 // (len(line) + 1)) + "E: x"
    started = time.perf_counter()
    for hostile in (text, text.replace("\n", ""), text.replace("\n", " ")[len(HEADER) :]):
        parse_stack(hostile)
        unfolded("E", hostile)
    assert time.perf_counter() - started < 3


def test_real_errors_give_their_types_messages_and_chains() -> None:
    """Stack texts of real libraries' exceptions, whose chains were recorded beside them."""
    for row in rows("errors"):
        node = parse_stack(row["stacktrace"])
        assert node is not None
        found = [(link, kind, said) for link, kind, said, _, _ in flat(node)]
        chain = [(link, kind, said.rstrip("\n")) for link, kind, said in row["chain"]]
        assert [("", row["type"], row["message"].rstrip("\n")), *chain] == found
        assert all(frames for _, _, _, frames, _ in flat(node)[:1])


def test_a_text_and_its_exception_have_one_fingerprint() -> None:
    """So a failure that a hook saw live and one that a span only tells count as the same."""
    for scene in (plain, caused, group_of_groups):
        error = raised(scene)
        node = parse_stack(text_of(error))
        assert node is not None
        assert fingerprint(capture(error)[0]) == fingerprint(node)


def test_a_message_that_holds_a_traceback_is_unfolded() -> None:
    """What stands before it is a repr, a copy of the message, or somebody's own words."""
    text = f'{HEADER}\n  File "a.py", line 1, in f\nhttp.Oops: no stock\n'
    for before in ("", "Oops('no stock')", "no stock", "http.Oops: no stock\n", '\n"""\n'):
        node = unfolded("Exception", f"{before}{text}")
        assert node is not None
        assert ("http.Oops", "no stock", None) == (node.type, node.message, node.cause)
    outer = unfolded("remote.RemoteError", f"the worker failed:\n\n{text}")
    assert outer is not None
    assert outer.cause is not None
    assert ("remote.RemoteError", "the worker failed:", "http.Oops") == (outer.type, outer.message, outer.cause.type)


def test_the_texts_are_small() -> None:
    """They live in the repository."""
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 100_000
