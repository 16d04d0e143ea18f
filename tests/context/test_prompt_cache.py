"""Providers cache by exact prefix: what was sent stays as it was, and error lines stand in the tail alone."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from otel_error_hygiene.context import ContextBuffer
from tests.context.told import RECOVERED, fail, line_of

SYSTEM = {"role": "system", "content": "You are an agent."}


def test_the_tail_block_leaves_the_cached_prefix_alone() -> None:
    """Five turns: a failure, two turns with its line, the note after the success, and nothing.

    For every turn, the history of the turn before is a byte-equal prefix; the block is only ever after it.
    """
    buffer = ContextBuffer("c")
    history: list[dict[str, Any]] = [SYSTEM]
    prompts: list[list[dict[str, Any]]] = []
    blocks: list[str] = []
    summary = None
    for turn in range(1, 6):
        history.append({"role": "user", "content": f"H{turn}"})
        tail = buffer.as_messages("openai")
        prompts.append([*history, *tail])
        blocks.append("\n".join(str(message["content"]) for message in tail))
        start = time.time_ns()
        buffer.tool_called(start)
        if turn == 1:
            summary = fail(buffer, "search_web", ended_ns=time.time_ns())
        if turn == 3:
            buffer.resolve("search_web", None, None, start)
    assert summary is not None
    line = line_of("search_web", summary)
    assert ["", line, f"{line} (1 turn ago)", RECOVERED, ""] == blocks
    for turn in range(2, 6):
        sent, before = ([json.dumps(message) for message in prompts[n]] for n in (turn - 1, turn - 2))
        assert before[:turn] == sent[:turn]  # the system prompt and H1 to H(n-1)
        assert turn + 1 + bool(blocks[turn - 1]) == len(sent)  # an empty block adds nothing
    assert all(SYSTEM == prompt[0] for prompt in prompts)


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_placed_result_in_the_history_is_never_rewritten(dialect: str) -> None:
    """Repeats, an escalation, age and a success change the buffer, not the messages that were given before."""
    buffer = ContextBuffer("c", escalate_transient_after=3)
    history, sent = [], []
    for number in range(3):
        history.append(buffer.as_tool_result(fail(buffer, "pay"), f"c{number}", dialect))
        sent.append(json.dumps(history[-1]))
        assert "" == buffer.render()
        buffer.turn()
    buffer.resolve("pay", None, None, time.time_ns())
    buffer.render()
    assert sent == [json.dumps(message) for message in history]
    assert [False, False, True] == ["[escalate]" in message for message in sent]
