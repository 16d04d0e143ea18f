"""The command line: look into the store, deliver what is pending, decide on what was refused.

    otel-error-hygiene list | stats | show REF | deliver | requeue REF | discard REF | purge | demo

Exit codes:

| code | meaning |
|------|---------|
| 0 | done |
| 1 | not everything done: something is still pending or quarantined, no record matches, or several do |
| 2 | wrong usage or configuration: an unusable value, no endpoint |
| 3 | the store cannot be read |

With ``--json`` stdout holds one JSON document and nothing else; with codes 2 and 3 it is empty. Words for humans about
what went wrong go to stderr.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line, and exit with its code."""
    from .app import app  # loads typer and rich, which only the command line needs

    for stream in (sys.stdout, sys.stderr):
        # Text of an error may hold what the terminal's encoding lacks; showing it must not fail.
        getattr(stream, "reconfigure", lambda **_: None)(errors="backslashreplace")
    try:
        app(prog_name="otel-error-hygiene")
    except BrokenPipeError:  # `list | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
