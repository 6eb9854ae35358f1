"""The reference that docsite/reference.py makes: nothing of the code is missing on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, Field

import reference
from helpers.command_line import zerosum
from zerosum import Policy, Study
from zerosum.algorithms import ALGORITHMS
from zerosum.data.omop import Definitions
from zerosum.site.schema import DataSchema
from zerosum.study import SiteFile

DOCS = Path(__file__).parents[1] / "docs"


@cache
def sections(of: Callable[[], str], mark: str) -> dict[str, str]:
    """A page's parts by what stands in their headings."""
    parts = re.split(rf"^{mark} ", of(), flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts if part)


def tables(kind: Any) -> Iterator[type[BaseModel]]:
    """Every model that a file's entries are made of."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
        for field in kind.model_fields.values():
            yield from tables(field.annotation)
    for inner in get_args(kind):
        yield from tables(inner)


def test_reference_page_has_every_entry_of_every_table() -> None:
    page = reference.fill((DOCS / "entries.md").read_text())
    known = {kind for file in (Study, SiteFile, DataSchema, Policy, Definitions) for kind in tables(file)}
    assert {kind.__name__ for kind in known} == set(reference.MODELS)
    asked = re.findall(r"<!-- code: entries (\w+) -->", (DOCS / "entries.md").read_text())
    assert sorted(asked) == sorted(reference.MODELS)
    for entry in ("`epsilon`", "`minimum_colluders`", "`unit_column`", "`hold_seconds`", "`smoothing_mm`", "`formula`"):
        assert f"| {entry} |" in page
    assert "| `folder` |" not in page
    assert "<!-- code" not in page


@pytest.mark.parametrize("name", ALGORITHMS)
def test_reference_page_has_every_parameter_of_algorithm(name: str) -> None:
    text = sections(reference.parameters, "###")[name]
    for parameter in ALGORITHMS[name].model_fields:
        assert re.search(rf"^\| `{parameter}` \| .+ \| .+ \| \S.+ \|$", text, re.MULTILINE)


def test_reference_entries_have_types_defaults_and_bounds() -> None:
    assert re.search(r"\| `minimum_units` \| .*\b1 \| `10` \|", reference.entries("Policy"))
    assert "| `adjacency` | `replace-one`, `add-remove` | `replace-one` |" in reference.entries("UnitTable")
    assert "| `name` | text | required |" in reference.entries("RosterTable")


class Dumb(BaseModel):
    entry: int = Field(default=0)


def test_reference_entry_without_meaning_raises() -> None:
    with pytest.raises(LookupError, match=r"Dumb\.entry"):
        reference._meaning(Dumb, "entry")


@pytest.mark.parametrize("words", reference.every_command())
def test_reference_page_has_every_option_of_help(words: str, tmp_path: Path) -> None:
    shown = zerosum(*words.split(), "--help", cwd=tmp_path)
    assert shown.returncode == 0
    text = sections(reference.commands, "##")[f"zerosum {words}"]
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", shown.stdout.split("Options")[-1])) - {"--help"}
    assert [option for option in sorted(options) if f"| `{option}" not in text] == []


def test_module_list_of_the_source_is_complete() -> None:
    page = reference.fill((DOCS / "modules.md").read_text())
    source = DOCS.parent / "src"
    for path in (source / "zerosum").rglob("*.py"):
        if path.read_text().strip():
            section = page.split(f"## {path.parent.relative_to(source).as_posix()}\n")[1].split("\n## ")[0]
            assert f"| `{path.name}` | " in section
