"""Who may import whom: dependencies point inward (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import zerosum

SOURCE = Path(zerosum.__file__).parent

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "kernel": {"errors"},
    "statistics": {"errors", "kernel"},
    "secagg": {"errors"},
    "site": {"errors", "kernel", "statistics", "secagg"},
    "algorithms": {"errors", "kernel", "statistics"},
    "engines": {"errors", "kernel", "statistics", "site", "secagg"},
    "data": {"errors", "kernel"},
    "report": {"errors", "kernel"},
    "study": {"errors", "kernel", "statistics", "site", "algorithms", "engines", "data", "report"},
    "baselines": {"errors", "kernel"},
    "reproduce": {"errors", "kernel", "statistics", "site", "algorithms", "data", "study", "baselines", "report"},
    "estimators": {"errors", "kernel", "statistics", "algorithms", "report", "site", "study", ""},
    "mistakes": {"errors", "kernel", "statistics", "algorithms"},  # what its faults are in, it imports by name
    "audit": {"errors", "kernel", "statistics", "site", "algorithms", "engines", "study"},
    "bench": {"errors", "kernel", "site", "secagg"},
    "demo": {"errors", "kernel", "site", "algorithms", "data", "report", "study"},
    "demo_maps": {"data", "reproduce"},
    "terminal": {"report"},
    "cli": {
        "terminal",
        "errors",
        "kernel",
        "site",
        "report",
        "study",
        "demo",
        "demo_maps",
        "audit",
        "mistakes",
        "bench",
        "reproduce",
        "",
    },
    "": {"errors", "kernel", "statistics", "site", "algorithms", "report", "study", "estimators"},
}
IO = {"pathlib", "sqlite3", "socket", "subprocess", "tempfile", "requests", "secrets", "random"}


def part_of(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem.replace("__init__", "")


def imports(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found += [f"{module}.{alias.name}" for alias in node.names] if module == "zerosum" else [module]
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_dependencies_point_inward(path: Path) -> None:
    part = part_of(path)
    for name in imports(path):
        if name.split(".")[0] == "zerosum":
            target = name.split(".")[1] if "." in name else ""
            target = target if (SOURCE / target).is_dir() or (SOURCE / f"{target}.py").exists() else ""
            assert target == part or target in MAY_IMPORT[part], f"{part} must not import {name}"
        if part in ("kernel", "statistics", "algorithms", "secagg"):
            allowed = {"secrets"} if part == "secagg" else set()  # keys and shares, drawn by the operating system
            assert name.split(".")[0] not in IO - allowed, f"{part} is pure: it must not import {name}"


def test_every_part_is_known() -> None:
    assert {part_of(path) for path in SOURCE.rglob("*.py")} == set(MAY_IMPORT)


def test_the_public_surface_is_what_it_says() -> None:
    assert len(set(zerosum.__all__)) == len(zerosum.__all__)
    for name in zerosum.__all__:
        assert getattr(zerosum, name).__doc__
