"""The floors of the design: imports go downward only, nobody imports the package itself, and its import is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_error_hygiene

PACKAGE = Path(otel_error_hygiene.__file__).parent

# One row per floor, the lowest first. A name is a module or a room (a folder), and is imported from higher rows only;
# modules of one room may import each other, verbs are strangers.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("semconv", "errors", "_guard", "_sdk"),
    ("model", "settings"),
    ("capture", "classify", "conventions", "redact", "summary"),
    ("context", "forensics"),
    ("machine",),
    ("recording", "wrapping"),
    ("boundary", "verbs", "installer"),
    ("cli", "testing"),
)
FLOOR_OF = {name: number for number, row in enumerate(FLOORS) for name in row}


def _modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts), path


def _imports(path: Path) -> Iterator[str]:
    """Yield the parts, below the package, of every module of ours that a file imports."""
    package = path.relative_to(PACKAGE).parent.parts
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - (node.level - 1)]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            for name in names:
                yield ".".join((*base, *name.split(".")))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == PACKAGE.name:
            yield "the package itself"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == PACKAGE.name:
                    yield "the package itself"


MODULES = [(name, path) for name, path in _modules() if name != "__init__"]


@pytest.mark.parametrize(("name", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_imports_go_downward_only(name: str, path: Path) -> None:
    """A module imports its own room and lower floors, never its own top package (DESIGN, rooms and floors)."""
    room = name.split(".", maxsplit=1)[0]
    assert room in FLOOR_OF, f"{room} has no floor"
    for imported in _imports(path):
        target = imported.split(".")[0]
        assert target == room or FLOOR_OF.get(target, 99) < FLOOR_OF[room], f"{name} imports {imported}"


def test_no_import_circle_inside_a_room() -> None:
    """Modules of one room form no circle (STYLE: 0, held by a test)."""
    graph = {name: set(_imports(path)) for name, path in MODULES}
    names = set(graph)
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name in done:
            return
        for target in graph[name]:
            # `from . import x` names the folder's __init__ as well as x; only real modules are followed.
            if target in names and target != name:
                visit(target, (*trail, name))
        done.add(name)

    for name in sorted(names):
        visit(name, ())


def test_the_public_names_are_sorted_and_all_resolve() -> None:
    """``__all__`` is sorted, every name in it loads, and nothing else is public (STYLE, habit 9)."""
    assert sorted(otel_error_hygiene.__all__) == otel_error_hygiene.__all__
    for name in otel_error_hygiene.__all__:
        assert getattr(otel_error_hygiene, name).__name__ == name


def test_the_import_is_light() -> None:
    """``import otel_error_hygiene`` loads neither grpc nor a framework nor the CLI's libraries nor the SDK (DESIGN)."""
    code = "import sys, otel_error_hygiene; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded).isdisjoint({"grpc", "opentelemetry", "pydantic", "requests", "rich", "typer"})


def test_the_front_door_loads_no_grpc_and_no_command_line() -> None:
    """Installing over HTTP loads neither grpc nor rich nor typer (DESIGN)."""
    code = (
        "import sys, otel_error_hygiene as h; h.install(None); h.tool_call('x');"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(loaded).isdisjoint({"grpc", "rich", "typer"})
