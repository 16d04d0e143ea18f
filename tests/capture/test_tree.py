"""Capture keeps all of an exception within its bounds, and never raises, whatever the exception does."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_error_hygiene.capture import Limits, capture, fingerprint, format_node, qualified_name, safe_str
from otel_error_hygiene.capture.tree import DEFAULT_LIMITS
from otel_error_hygiene.forensics.record import dumps, loads
from otel_error_hygiene.machine.nouns import plain_node
from otel_error_hygiene.model import ExceptionNode

EMPTY: dict[str, int] = {}


def raised(raising: Callable[[], object]) -> Exception:
    """Return what a function raises, with its traceback."""
    try:
        raising()
    except Exception as error:
        return error
    raise AssertionError("it raised nothing")


def chain_of(length: int, *, cause: bool = True) -> Exception:
    """Return a chain of that many exceptions, the last one outermost."""
    error: Exception = ValueError("0")
    for number in range(1, length):
        outer = ValueError(str(number))
        if cause:
            outer.__cause__ = error
        else:
            outer.__context__ = error
        error = outer
    return error


def messages(node: ExceptionNode | None) -> list[str]:
    """Return the messages along a chain, the outermost first."""
    found = []
    while node is not None:
        found.append(node.message)
        node = node.cause or node.context
    return found


def size(node: ExceptionNode) -> int:
    """Count the exceptions of a tree."""
    below = [member for member in (node.cause, node.context, *node.group) if member is not None]
    return 1 + sum(size(member) for member in below)


def test_chain_keeps_cause_and_context_apart() -> None:
    """What ``raise ... from`` named is the cause, what was being handled is the context."""

    def raising() -> None:
        try:
            try:
                int("x")
            except ValueError:
                EMPTY["missing"]
        except KeyError as error:
            raise RuntimeError("top") from error

    node, truncated = capture(raised(raising))
    assert not truncated
    assert node.cause is not None
    assert node.cause.context is not None
    assert ("RuntimeError", "KeyError", "ValueError") == (node.type, node.cause.type, node.cause.context.type)
    assert node.context is None
    assert node.cause.cause is None


def test_suppressed_context_is_left_out() -> None:
    """``raise ... from None`` hides what was being handled, as a traceback does."""

    def raising() -> None:
        try:
            int("x")
        except ValueError:
            raise RuntimeError("top") from None

    node, _ = capture(raised(raising))
    assert (None, None) == (node.cause, node.context)


def test_frames_name_file_line_and_function_and_end_where_it_was_raised() -> None:
    """The outermost frame is first, the raising one last."""
    node, _ = capture(raised(lambda: json.loads("{")))
    assert __file__ == node.frames[0][0]
    assert "raw_decode" in node.frames[-1][2] or "decode" in node.frames[-1][2]


def test_groups_of_groups_keep_every_member() -> None:
    """Members of nested groups are nodes below their group, in their order."""
    inner = ExceptionGroup("inner", [KeyError("k"), OSError("o")])
    node, _ = capture(ExceptionGroup("outer", [ValueError("v"), inner, TypeError("t")]))
    assert ["ValueError", "ExceptionGroup", "TypeError"] == [member.type for member in node.group]
    assert ["KeyError", "OSError"] == [member.type for member in node.group[1].group]


def test_notes_are_kept_as_a_traceback_shows_them() -> None:
    """A note that is no text is written as text; notes that are no sequence are written as one."""
    error = ValueError()
    error.add_note("first\nnote")
    error.__notes__.append(7)  # type: ignore[arg-type]
    odd = ValueError()
    odd.__notes__ = {"a": 1}  # type: ignore[assignment]
    assert (("first\nnote", "7"), ("{'a': 1}",)) == (capture(error)[0].notes, capture(odd)[0].notes)


@pytest.mark.parametrize("cause", [True, False])
def test_of_a_long_chain_both_ends_stay(*, cause: bool) -> None:
    """The root says what went wrong and the outermost what the caller saw: the middle is what is cut."""
    node, truncated = capture(chain_of(1000, cause=cause), Limits(max_exceptions=4))
    assert truncated
    assert ["999", "998", "1", "0"] == messages(node)


def test_a_chain_longer_than_recursion_allows_is_walked() -> None:
    """A retry loop that raises from the last error each time makes chains of any length."""
    node, truncated = capture(chain_of(sys.getrecursionlimit() * 5), Limits(max_exceptions=100_000))
    assert truncated
    assert "0" == messages(node)[-1]
    assert format_node(node).startswith("ValueError: 0\n")


def test_capture_with_little_stack_left_still_names_the_exception() -> None:
    """A boundary deep in an agent's own recursion gets at least type and message."""

    def deep(left: int) -> ExceptionNode:
        return capture(ExceptionGroup("g", [chain_of(30)]))[0] if not left else deep(left - 1)

    for left in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit() - 20, 7):
        try:
            node = deep(left)
        except RecursionError:  # of the call of ``capture`` itself
            return
        assert "ExceptionGroup" == node.type


def test_recursion_900_deep_is_captured() -> None:
    """A tool that fails deep in its own recursion keeps its outermost frames and those that raised."""

    def deep(left: int) -> None:
        if not left:
            raise ValueError("deep")
        deep(left - 1)

    node, truncated = capture(raised(lambda: deep(900)))
    assert truncated
    assert (100, 902 + 1 - 100) == (len(node.frames), node.frames_dropped)


def test_a_recursion_error_is_captured() -> None:
    """Also the one that Python raises itself."""

    def endless() -> None:
        endless()

    node, _ = capture(raised(endless))
    assert "RecursionError" == node.type
    assert len(format_node(node)) < 50_000


@pytest.mark.parametrize("attribute", ["__cause__", "__context__"])
def test_cycles_end(attribute: str) -> None:
    """A chain that leads back to itself is walked once."""
    first, second, third = ValueError("1"), ValueError("2"), ValueError("3")
    for error, before in ((first, second), (second, third), (third, first)):
        setattr(error, attribute, before)
    node, _ = capture(first)
    assert ["1", "2", "3"] == messages(node)
    first.__cause__ = first
    assert "1" == capture(first)[0].message


def test_a_group_that_contains_what_it_comes_from_ends() -> None:
    """An exception is kept once, wherever it stands first."""
    member = ValueError("m")
    group = ExceptionGroup("g", [member])
    member.__context__ = group
    assert 2 == size(capture(group)[0])


def test_five_megabytes_of_message_are_cut() -> None:
    """The message keeps its start and says how long it was; the cut is counted."""
    node, truncated = capture(ValueError("x" * 5_000_000))
    assert truncated
    assert len(node.message) <= DEFAULT_LIMITS.max_message_chars
    assert node.message.endswith("… (5000000 characters in all)")


def test_many_long_notes_are_cut() -> None:
    """Each note has the bound of a message, and there are at most 20."""
    error = ValueError()
    for _ in range(50):
        error.add_note("n" * 100_000)
    node, truncated = capture(error)
    assert truncated
    assert 20 == len(node.notes)
    assert max(map(len, node.notes)) <= DEFAULT_LIMITS.max_message_chars


def test_a_group_of_thousands_is_cut() -> None:
    """The first members stay."""
    node, truncated = capture(ExceptionGroup("g", [ValueError(str(n)) for n in range(5000)]))
    assert truncated
    assert DEFAULT_LIMITS.max_exceptions == size(node)


class _Explosive(type):
    """A metaclass whose classes tell nothing of themselves."""

    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)

    def __hash__(cls) -> int:
        raise RuntimeError("hash")


class HostileError(Exception):
    """Everything that capture reads of an exception raises."""

    def __str__(self) -> str:
        raise self.kind

    def __getattribute__(self, name: str) -> Any:
        if name == "kind":
            return object.__getattribute__(self, "args")[0]
        raise RuntimeError(name)

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __hash__(self) -> int:
        raise RuntimeError("hash")


class _Text(str):
    """Text that is none."""

    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError("len")

    def __getitem__(self, key: Any) -> str:
        raise RuntimeError("getitem")


class SlyError(Exception):
    """Its text is of a hostile subclass of ``str``."""

    def __str__(self) -> str:
        return _Text("sly")


@pytest.mark.parametrize("failure", [RuntimeError("no"), SystemExit(3), GeneratorExit(), RecursionError("deep")])
def test_a_hostile_exception_is_named(failure: BaseException) -> None:
    """What cannot be read is said in its place, and even an exit out of ``__str__`` does not reach the tool."""
    node, _ = capture(HostileError(failure))
    assert f"<unprintable: {type(failure).__name__} in __str__>" == node.message
    assert node.type.endswith("HostileError")
    assert format_node(node)
    assert fingerprint(node)


def test_a_hostile_exception_in_a_chain_and_a_group_is_named() -> None:
    """Its truth value and its equality are never asked for."""
    hostile = HostileError(RuntimeError("no"))
    outer = ValueError("outer")
    outer.__cause__ = hostile
    node, _ = capture(ExceptionGroup("g", [outer, hostile]))
    assert node.group[0].cause is not None


def test_text_of_a_subclass_becomes_plain_text() -> None:
    """``__str__`` may return anything that calls itself a ``str``."""
    assert "sly" == safe_str(SlyError())
    assert str is type(safe_str(SlyError()))


def test_an_interrupt_while_reading_goes_through() -> None:
    """Ctrl-C is the user's, at any moment."""
    with pytest.raises(KeyboardInterrupt):
        capture(HostileError(KeyboardInterrupt()))


def test_a_class_that_tells_nothing_is_an_exception() -> None:
    """A metaclass may raise for the name, the module and the hash of its classes."""
    kind: Any = _Explosive("Kind", (Exception,), {})
    assert "Exception" == qualified_name(kind)
    assert "x" == capture(kind("x"))[0].message


@pytest.mark.parametrize("name", ["A" * 5_000_000, "with\nnewline", "<script>", "\u202eevil", "a b"])
def test_class_names_are_bounded_and_harmless(name: str) -> None:
    """A class made from what a remote said may have any name; the record stays small and can be written."""
    kind = type(name, (ValueError,), {})
    node, _ = capture(raised(lambda: _raise(kind("x"))))
    assert len(node.type) <= 200
    assert "ValueError" in node.class_names
    assert len(dumps(plain_node(node))) < 20_000
    assert len(fingerprint(node)) == 16


def _raise(error: BaseException) -> None:
    raise error


class UnreadableNotesError(Exception):
    """Its notes cannot be read."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError("notes")


class _BadNote:
    def __str__(self) -> str:
        raise RuntimeError("note")

    __repr__ = __str__


def test_notes_that_raise_are_named_one_by_one() -> None:
    """One bad note hides none of the others."""
    error = ValueError("v")
    notes: list[Any] = ["good", _BadNote(), "also good"]
    error.__notes__ = notes
    assert ("good", "<unprintable: RuntimeError in note>", "also good") == capture(error)[0].notes
    assert () == capture(UnreadableNotesError())[0].notes


_texts = st.text(max_size=50) | st.sampled_from(["", "\0", "\ud800", "x" * 5000, "a\nb", "\u202e", "[error] forged"])


def _errors() -> st.SearchStrategy[BaseException]:
    leaf = st.builds(
        lambda kind, text: kind(text), st.sampled_from([ValueError, OSError, KeyError, SystemExit]), _texts
    )

    def extend(inner: st.SearchStrategy[BaseException]) -> st.SearchStrategy[BaseException]:
        return st.builds(_tree, leaf, inner | st.none(), inner | st.none(), st.lists(inner, max_size=4), _texts)

    return st.recursive(leaf, extend, max_leaves=30)


def _tree(
    leaf: BaseException, cause: BaseException | None, context: BaseException | None, members: Any, note: str
) -> BaseException:
    error = BaseExceptionGroup("group", members) if members else leaf
    error.__cause__, error.__context__ = cause, context
    error.__suppress_context__ = cause is not None
    error.add_note(note)
    return error


@given(
    error=_errors(),
    limits=st.builds(Limits, st.integers(0, 20), st.integers(-1, 40), st.integers(0, 400)),
)
@settings(max_examples=200, deadline=None)
def test_any_tree_is_captured_within_its_bounds(error: BaseException, limits: Limits) -> None:
    """However causes, contexts, groups and notes are nested, the tree is bounded, can be written and read again."""
    node, _ = capture(error, limits)
    assert size(node) <= max(limits.max_exceptions, 1)
    assert format_node(node)
    assert fingerprint(node) == fingerprint(node)
    assert node == ExceptionNode.model_validate(loads(dumps(plain_node(node))))


@pytest.mark.parametrize("depth", [10, 150, 900])
def test_groups_of_groups_are_captured_at_any_depth(depth: int) -> None:
    """The deepest that are kept can be written as a record and as text."""
    error: Exception = ValueError("leaf")
    for _ in range(depth):
        error = ExceptionGroup("g", [error])
    node, truncated = capture(error, Limits(max_exceptions=100_000))
    assert (depth > 100) == truncated
    assert min(depth + 1, 40) == size(node)
    assert format_node(node)
    assert node == ExceptionNode.model_validate(loads(dumps(plain_node(node))))


def test_capture_of_32_frames_takes_tens_of_microseconds() -> None:
    """It runs on the tool's thread; the bound is generous, for a busy machine."""

    def deep(left: int) -> None:
        if not left:
            raise ValueError("deep")
        deep(left - 1)

    error = raised(lambda: deep(30))
    best = min(_seconds(lambda: capture(error)) for _ in range(200))
    assert best < 500e-6


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
