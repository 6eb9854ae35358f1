"""The constants of the algorithms that are packages: all in one place, each with a description and a source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import zerosum.algorithms

PACKAGES = {"pca": 40, "ica": 40, "regression": 40, "training": 20}  # with the least number of fields
ROOT = Path(zerosum.algorithms.__file__).parent
# Words of which a description has at least one: how the value came about.
SOURCES = (
    "by hand",
    "benchmark",
    "prototype",
    "simulations",
    "on the data of",
    "same",
    "tracy-widom",
    "probability",
    "false-alarm",
    "fit",
    "usual limit",
)


def fields(package: str) -> dict[str, str]:
    """Each field of `Tuning` with the string below it, empty where there is none."""
    tree = ast.parse((ROOT / package / "tuning.py").read_text(encoding="utf-8"))
    (tuning,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    found, name = {}, ""
    for node in tuning.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = ""
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                found[name] = " ".join(text.lower().split())
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_tuning_every_field_has_a_description_with_a_source(package: str) -> None:
    described = fields(package)
    assert len(described) > PACKAGES[package]
    assert [name for name, text in described.items() if not any(word in text for word in SOURCES)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_tuning_every_field_is_used(package: str) -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / package).glob("*.py") if path.name != "tuning.py"]
    assert [name for name in fields(package) if not any(f"TUNING.{name}" in source for source in sources)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_tuning_other_modules_have_no_private_numbers(package: str) -> None:
    """A module-level private constant that is a number, or a tuple of numbers, belongs into `Tuning`."""
    found = []
    for path in (ROOT / package).glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match node:
                case ast.Assign(targets=[target], value=ast.Constant() | ast.Tuple() | ast.UnaryOp()):
                    found += [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
    assert [name for name in found if name.startswith("_")] == []
