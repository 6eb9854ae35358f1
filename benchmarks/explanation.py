"""How much of the code is explained: code lines, docstrings and comments for each package of the project.

    python benchmarks/explanation.py [FOLDER] [--other NAME=FOLDER ...]

Method, the same for every tree, so that other libraries can be measured beside ours
(`--other sklearn=PATH/sklearn/decomposition`):

* a code line holds at least one token that is neither a comment nor part of a docstring;
* a docstring line is a line between the quotes of a module's, class's or function's docstring, both included;
* an own-line comment is a line with nothing but a comment; a trailing comment stands behind code;
* a public function has a name without a leading underscore, at module level or in a class; its parameter section is a
  heading "Parameters" (numpydoc) or "Args:" (Google) in its own docstring, or in that of its class for `__init__`.

Tests are left out: files named `test_*.py` and folders named `tests`.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADINGS = ("Parameters\n", "Args:", "Arguments:")
# Tokens that take no place of their own: a line that has nothing else is not a code line.
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}


@dataclass
class Measure:
    """Sums over the files of one package."""

    files: int = 0
    code: int = 0
    docstring: int = 0
    comments: int = 0
    trailing: int = 0
    public: int = 0
    with_docstring: int = 0
    with_parameters: int = 0

    def add(self, other: Measure) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def row(self, name: str) -> str:
        code, public = max(self.code, 1), max(self.public, 1)
        return (
            f"{name:24s} {self.files:5d} {self.code:7d} {self.docstring / code:9.2f} {100 * self.comments / code:9.1f} "
            f"{100 * self.trailing / code:9.1f} {100 * self.with_docstring / public:8.0f} % "
            f"{100 * self.with_parameters / public:8.0f} %"
        )


HEADER = f"{'package':24s} files    code doc/code comm/100 trail/100 public doc with params"


def _documented(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every node that may have a docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in _documented(tree):
        if ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def _public_functions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The docstring and the class's docstring of each public function; nested functions are internal."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                    yield ast.get_docstring(inner) or "", ""
                elif isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                    yield ast.get_docstring(inner) or "", ast.get_docstring(node) or ""
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield ast.get_docstring(node) or "", ""


def measure_file(text: str) -> Measure:
    """Count one file's lines by kind."""
    tree = ast.parse(text)
    docstrings = _docstring_lines(tree)
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    code -= docstrings
    found = Measure(1, len(code), len(docstrings), len(comments - code), len(comments & code))
    for own, of_class in _public_functions(tree):
        found.public += 1
        found.with_docstring += bool(own or of_class)
        found.with_parameters += any(heading in own + of_class for heading in HEADINGS)
    return found


def measure_folder(folder: Path) -> dict[str, Measure]:
    """One measure for each direct sub-folder; files beside them count as "(top)"."""
    found: dict[str, Measure] = defaultdict(Measure)
    for path in sorted(folder.rglob("*.py")):
        inside = path.relative_to(folder)
        if path.name.startswith("test_") or "tests" in inside.parts:
            continue
        found[inside.parts[0] if len(inside.parts) > 1 else "(top)"].add(measure_file(path.read_text(encoding="utf-8")))
    return dict(found)


def total(packages: dict[str, Measure]) -> Measure:
    """The sum over all packages."""
    whole = Measure()
    for measure in packages.values():
        whole.add(measure)
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description="code lines, docstrings and comments by package")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1] / "src" / "zerosum")
    parser.add_argument("--other", action="append", default=[], metavar="NAME=FOLDER", help="another tree, one row")
    arguments = parser.parse_args()
    packages = measure_folder(arguments.folder)
    print(HEADER)
    for name, measure in sorted(packages.items()):
        print(measure.row(name))
    print(total(packages).row("all"))
    for other in arguments.other:
        name, _, folder = other.partition("=")
        print(total(measure_folder(Path(folder))).row(name))


if __name__ == "__main__":
    main()
