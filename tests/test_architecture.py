"""Who may import whom: dependencies point inward (docs/architecture.md). Every module has tests."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

import zerosum

SOURCE = Path(zerosum.__file__).parent

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "arrays": set(),
    "version": set(),
    "disk": set(),
    "html": {"kernel"},
    "__main__": {"cli"},
    "kernel": {"errors", "html"},
    "secagg": {"errors"},
    "noise": {"errors"},
    "compute": {"errors", "kernel"},
    "statistics": {"errors", "kernel", "compute"},
    "protocol": {"compute", "errors", "kernel", "statistics", "secagg"},
    "site": {"compute", "disk", "errors", "html", "version", "kernel", "statistics", "secagg", "noise", "protocol"},
    "algorithms": {"compute", "errors", "kernel", "statistics"},
    "coordinator": {"compute", "disk", "errors", "kernel", "statistics", "secagg", "noise", "protocol", "engines"},
    "engines": {"compute", "errors", "kernel", "protocol", "site"},
    "data": {"compute", "disk", "errors", "kernel"},
    "report": {"disk", "errors", "html", "version", "kernel", "secagg", "site", "data"},
    "study": {
        "disk",
        "errors",
        "kernel",
        "compute",
        "statistics",
        "protocol",
        "secagg",
        "site",
        "algorithms",
        "coordinator",
        "engines",
        "data",
        "report",
    },
    "forecast": {
        *("errors", "kernel", "compute", "statistics", "protocol", "site", "algorithms"),
        *("coordinator", "engines", "data", "report", "study"),
    },
    "estimators": {"compute", "data", "errors", "kernel", "statistics", "algorithms", "report", "site", "study", ""},
    "audit": {
        *(
            "errors",
            "kernel",
            "compute",
            "statistics",
            "noise",
            "protocol",
            "site",
            "algorithms",
            "coordinator",
            "engines",
            "study",
        ),
    },
    # Above `study`, unlike `engines`: a FLARE job starts its own coordinator, reads study files and writes reports.
    "flare": {"errors", "kernel", "secagg", "protocol", "engines", "report", "study"},
    # Above `study` for the same reason: Flower's ServerApp is the coordinator.
    "flower": {"errors", "version", "kernel", "secagg", "protocol", "engines", "report", "study"},
    "papers": {
        *("compute", "errors", "html", "version", "kernel", "statistics", "site", "algorithms", "data", "study"),
        *("coordinator", "engines", "protocol", "report", "secagg"),
    },
    "watch": {"errors", "html", "version", "kernel", "protocol", "site", "coordinator", "study", "report"},
    "demo": {"errors", "kernel", "secagg", "site", "algorithms", "data", "report", "study"},
    "demo_maps": {"data", "papers"},
    "cli": {
        "errors",
        "version",
        "kernel",
        "compute",
        "protocol",
        "site",
        "algorithms",
        "report",
        "study",
        "forecast",
        "demo",
        "demo_maps",
        "audit",
        "flare",
        "flower",
        "papers",
        "watch",
        "",
    },
    "": {"compute", "errors", "version", "kernel", "statistics", "site", "algorithms", "report", "study", "estimators"},
}
TESTS = Path(__file__).parent
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
def test_imports_point_inward(path: Path) -> None:
    part = part_of(path)
    for name in imports(path):
        if name.split(".")[0] == "zerosum":
            target = name.split(".")[1] if "." in name else ""
            target = target if (SOURCE / target).is_dir() or (SOURCE / f"{target}.py").exists() else ""
            assert target in (part, "arrays") or target in MAY_IMPORT[part], f"{part} must not import {name}"
        if part in ("kernel", "compute", "statistics", "algorithms", "secagg"):
            allowed = {"secrets"} if part == "secagg" else set()  # keys and shares, drawn by the operating system
            assert name.split(".")[0] not in IO - allowed, f"{part} is pure: it must not import {name}"


def test_architecture_table_has_every_package() -> None:
    assert {part_of(path) for path in SOURCE.rglob("*.py")} == set(MAY_IMPORT)


def test_public_names_are_unique_and_documented() -> None:
    assert len(set(zerosum.__all__)) == len(zerosum.__all__)
    for name in zerosum.__all__:
        assert getattr(zerosum, name).__doc__


@functools.cache
def code_of_tests() -> str:
    """The text of all test modules and their helpers, without the seeded faults, which name each module they change."""
    paths = sorted(TESTS.rglob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if "mutations" not in path.parts)


@pytest.mark.parametrize(
    "path",
    sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py"),
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_module_has_a_test_module_of_its_name_or_is_named_by_tests(path: Path) -> None:
    relative = path.relative_to(SOURCE)
    # the program of a package is tested in the module that has the package's name
    own = TESTS / relative.parent / f"test_{path.parent.name if path.stem == 'program' else path.stem}.py"
    if own.exists():
        return
    dotted = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    source = path.read_text(encoding="utf-8")
    names = re.findall(r"^(?:class |def |    name: ClassVar\[str\] = \")([A-Za-z]\w*)", source, re.MULTILINE)
    package = f"from {dotted.rpartition('.')[0]} import"
    known = "|".join(re.escape(name) for name in (dotted, package, *names))
    assert re.search(rf"\b(?:{known})\b", code_of_tests()), f"no test names {relative} or anything that it defines"


TEST_PACKAGES = {"helpers", "differential", "mutations"}


def test_test_modules_share_code_by_packages_and_import_no_test_module() -> None:
    """Modules without tests lie in `tests/helpers`, or belong to the fuzzer or to the seeded faults."""
    paths = sorted(TESTS.rglob("*.py"))
    outside = {path for path in paths if path.relative_to(TESTS).parts[0] not in TEST_PACKAGES}
    assert [path for path in outside if not path.name.startswith("test_") and path.name != "conftest.py"] == []
    modules = {path.stem for path in outside} | {path.stem for path in paths if path.name.startswith("test_")}
    assert [(path.name, name) for path in paths for name in imports(path) if modules & set(name.split("."))] == []


def test_installed_modules_import_no_code_of_tests() -> None:
    """Code that changes the noise sampler has no place in what a hospital installs."""
    paths = sorted(SOURCE.rglob("*.py"))
    assert [path for path in paths for name in imports(path) if name.split(".")[0] in TEST_PACKAGES] == []
    assert not [path for path in paths if "mutations" in path.parts or ".__code__ =" in path.read_text()]
