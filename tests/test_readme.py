"""The README is a promise: its examples run, and print what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
BLOCKS = [re.sub(r"(?m)^   ", "", block) for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)]


def _run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("code", BLOCKS, ids=[f"block {number}" for number, _ in enumerate(BLOCKS, 1)])
def test_every_python_example_runs_in_a_process_of_its_own(code: str) -> None:
    """Each example can be pasted as it is (STYLE, habit 11)."""
    _run(code)


def test_the_first_example_prints_the_line_that_the_readme_shows() -> None:
    """The line under "what the agent sees" is what the ten lines above it print, but for the reference."""
    shown = re.search(r"```text\n(\[error\] .*)\n```", README)
    assert shown is not None
    without_ref = re.compile(r"ref=[0-9a-f]{8}")
    assert without_ref.sub("ref=", shown[1]) == without_ref.sub("ref=", _run(BLOCKS[0]).strip())


def test_the_first_example_has_at_most_ten_lines_of_code() -> None:
    """A snippet of at most ten lines stands on the first screen (STYLE, voice)."""
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 10


def test_the_loop_example_gives_the_failed_call_its_own_message() -> None:
    """The call's line is its result, and the tail block does not repeat it (its place is taken)."""
    printed = _run(BLOCKS[2] + "\nprint(len(messages), messages[0]['tool_call_id'], messages[0]['content'])")
    # Without install() nothing is recorded, so the line has no reference.
    line = "[error] search: not_found. Try broader search or different category. (HTTP 404)"
    assert f"1 call_1 {line}" == printed.strip()
