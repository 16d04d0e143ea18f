"""The commands and their options; what they do stands in a module each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from . import change, listing
from .deliver import deliver as run_deliver
from .output import EXIT_CODES, opened, warnings_to_stderr
from .show import show as run_show
from .survey import parse_ref

app = typer.Typer(
    name="otel-error-hygiene",
    help="Look into the store of failed tool calls: what agents were told, and everything behind it.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # paragraphs are filled, not cut where the source breaks its lines
    pretty_exceptions_enable=False,
)

Store = Annotated[
    Path | None,
    typer.Option(
        "--store", metavar="PATH", help="The store's folder. Default: OTEL_ERROR_HYGIENE_STORE_PATH, or the user's own."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout, and nothing else.")]


def _ref(text: str) -> str:
    key = parse_ref(text)
    if key is None:
        raise typer.BadParameter(
            f"{text!r}; it must be the 8 hex digits of a line's ref=, or the 16 of a record id or a span id"
        )
    return key


Ref = Annotated[
    str,
    typer.Argument(
        metavar="REF", callback=_ref, help="8 hex digits of a line's ref=, or 16 of a record id or a span id."
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        # The top package is loaded, being our parent; importing it here would close an import circle.
        typer.echo(f"otel-error-hygiene {sys.modules[__name__.partition('.')[0]].__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    warnings_to_stderr()


@app.command(name="list", epilog=EXIT_CODES)
def list_(
    state: Annotated[listing.Seen | None, typer.Option(help="Only those in this state.")] = None,
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="Only those of this tool.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the newest N.")] = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """List the failed tool calls of the store, the newest last."""
    with opened(store) as settings:
        listing.list_failures(settings, state, tool, limit, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def stats(store: Store = None, as_json: Json = False) -> None:
    """Count the whole store by destination and state, in failed tool calls."""
    with opened(store) as settings:
        listing.print_stats(settings, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def show(ref: Ref, store: Store = None, as_json: Json = False) -> None:
    """Show failures in full: the exceptions with their frames, the trace, what the agent was told and what followed.

    All that match are shown, the newest first.
    """
    with opened(store) as settings:
        run_show(settings, ref, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def deliver(
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long it may take; a Retry-After within it is obeyed.")
    ] = 30.0,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Send what is pending to the endpoint that OTEL_EXPORTER_OTLP_* names.

    Also what processes left that are dead, and what live ones have not sent yet. Each destination (endpoint and
    headers) gets only what was recorded for it.
    """
    with opened(store) as settings:
        run_deliver(settings, timeout, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def requeue(ref: Ref, store: Store = None, as_json: Json = False) -> None:
    """Make a quarantined record pending again, so that it is sent once more."""
    with opened(store) as settings:
        change.requeue(settings, ref, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def discard(
    ref: Ref,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Destroy a record, whatever its state: it is erased, and never sent."""
    with opened(store) as settings:
        change.discard(settings, ref, yes=yes, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def purge(store: Store = None, as_json: Json = False) -> None:
    """Erase what was delivered, and remove the files of dead processes that hold nothing else."""
    with opened(store) as settings:
        change.purge(settings, as_json=as_json)


@app.command(epilog=EXIT_CODES)
def demo(
    naive: Annotated[bool, typer.Option(help="Show what a naive agent's prompt would hold beside ours.")] = True,
    jaeger_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where Jaeger's page is. Default: JAEGER_URL, or its usual address."),
    ] = None,
) -> None:
    """Watch a small agent fail and recover: its prompt, turn by turn, and the whole record behind one line."""
    from rich.console import Console

    from .demo import run_demo  # brings an agent and a server, which no other command needs

    raise typer.Exit(run_demo(Console(), naive=naive, jaeger_url=jaeger_url))
