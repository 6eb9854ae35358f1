"""Names, paths and links in the text of the pages: each exists in the source, in the repository or on a page."""

from __future__ import annotations

import ast
import builtins
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from markdown.extensions.toc import slugify

from zerosum import statistics

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]
# names of libraries and of HTTP, and a word of a corpus
FOREIGN = {
    "ColumnTransformer",
    "GridSearchCV",
    "GroupNorm",
    "NiftiLabelsMasker",
    "NiftiMapsMasker",
    "NiftiMasker",
    "Adam",
    "RMSprop",
    "Host",
    "Origin",
    "Lake",
    *dir(builtins),
}
GROUPS = {"zerosum.modules", "zerosum.features"}  # entry points, which are no modules


def text_of(page: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def inline_code(page: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", text_of(page)))


@cache
def defined() -> frozenset[str]:
    """Classes, functions and assigned or imported names of the source, and words of its literals (keys, headers)."""
    found: set[str] = set()
    for path in (ROOT / "src" / "zerosum").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.Attribute(attr=name):
                    found.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.alias(name=name):
                    found.update(name.split("."))
                case ast.Constant(value=str(text)) if id(node) not in docstrings:
                    found.update(re.split(r"\W", text))
                case _:
                    pass
    return frozenset(found)


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute or a field below one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            if part in getattr(found, "model_fields", {}):
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/comparison.md"])  # which is about others
def test_class_named_on_a_page_is_in_the_source(page: str) -> None:
    words = {code.partition("(")[0].partition(".")[0] for code in inline_code(page)}
    named = {word for word in words if re.fullmatch(r"[A-Z]\w*[a-z]\w*", word)} - FOREIGN
    assert sorted(named - defined()) == []


def test_class_that_was_renamed_would_be_found() -> None:
    assert not {"Law", "Mixing", "NoSuchClass"} & defined()
    assert {"NoiseLaw", "NoiseMechanism", "PrivateSum"} <= defined()


@pytest.mark.parametrize("page", PAGES)
def test_dotted_name_on_a_page_resolves(page: str) -> None:
    named = {found for code in inline_code(page) for found in re.findall(r"^zerosum(?:\.\w+)+", code)}
    assert [name for name in sorted(named - GROUPS) if not resolves(name)] == []


@pytest.mark.parametrize("page", PAGES)
def test_python_file_named_on_a_page_exists(page: str) -> None:
    named = {found for code in inline_code(page) for found in re.findall(r"^(?:[\w-]+/)*\w+\.py(?!\w)", code)}
    folders = [ROOT, ROOT / "src" / "zerosum", ROOT / "tests", ROOT / "benchmarks"]
    known = {"hospitals.py"}  # made by the tutorial
    assert [name for name in sorted(named - known) if not any((folder / name).exists() for folder in folders)] == []


@cache
def anchors(page: Path) -> frozenset[str]:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return frozenset(
        {slugify(heading.replace("`", ""), "-") for heading in headings} | set(re.findall(r'id="([^"]+)"', text))
    )


@pytest.mark.parametrize("page", PAGES)
def test_link_to_a_heading_finds_it(page: str) -> None:
    """MkDocs only warns of such a link, and its warnings are not shown by `make docs`."""
    generated = {"entries.md", "commands.md", "api.md", "modules.md"}  # whose headings come from the code
    for path, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)", text_of(page)):
        target = (ROOT / page).parent / path if path else ROOT / page
        if target.name not in generated:
            assert anchor in anchors(target.resolve()), f"{page} links to {path}#{anchor}"


def sensitivity_rows() -> dict[str, list[str]]:
    """Cells of the table of sensitivities after the name, by the name of the statistic."""
    section = (
        (ROOT / "docs" / "guarantee.md").read_text(encoding="utf-8").split("\n## Sensitivities\n")[1].split("\n## ")[0]
    )
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:3] == "| `"
    ]
    return {name.strip("`| "): cells for name, *cells in rows}


def test_table_of_sensitivities_lists_every_builtin_statistic_once() -> None:
    assert sorted(sensitivity_rows()) == sorted(statistics.BUILTIN)


@pytest.mark.parametrize("name", sorted(statistics.BUILTIN))
def test_row_of_a_sensitivity_names_the_module_of_its_proof(name: str) -> None:
    _contribution, replaced, added, proof = sensitivity_rows()[name]
    assert replaced
    assert added
    proofs = {
        kind.__module__ for kind in statistics.find(name).__mro__ if "Sensitivity" in (vars(kind)["__doc__"] or "")
    }
    assert f"zerosum.statistics.{proof.strip('` |')}" in proofs
