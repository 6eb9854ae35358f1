"""Random docstrings and error messages of two versions of the package side by side, as Markdown tables.

    python benchmarks/wording.py --before OLD_CHECKOUT/src/zerosum --after src/zerosum --seed 1

Texts are paired by the file and the qualified name of their module, class or function. A name that is not in the same
file of both trees is paired if both trees have exactly one of that name (programs of 0.3 end in `Program`). Error
messages are the first arguments of raised exceptions. They are paired by their order in a function, if it raises
the same number of messages in both trees.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

DOCSTRINGS, MESSAGES = 30, 20
Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
#: File relative to the package, and qualified name; the name of a module is empty.
Key = tuple[str, str]


@dataclass(frozen=True)
class Texts:
    """Docstring, if there is one, and messages of one definition."""

    docstring: str | None
    messages: list[str] = field(default_factory=list)


def definitions(node: Definition, name: str = "") -> Iterator[tuple[str, Definition]]:
    """A module, class or function with everything defined in it, by qualified name."""
    yield name, node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from definitions(child, f"{name}.{child.name}".lstrip("."))


def own_raises(node: ast.AST) -> Iterator[ast.Raise]:
    """Raise statements of a function, without those of functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Raise):
            yield child
        elif not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from own_raises(child)


def message_of(raised: ast.Raise) -> str | None:
    """Text of a raised exception, with the expressions of an f-string in braces; None if it has no literal text."""
    call = raised.exc
    if not isinstance(call, ast.Call) or not call.args:
        return None
    text = call.args[0]
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return text.value
    if isinstance(text, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else ast.unparse(ast.JoinedStr([part]))[2:-1]
            for part in text.values
        )
    return None


def texts_of(package: Path) -> dict[Key, Texts]:
    """Texts of every definition below a folder."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        for name, node in definitions(ast.parse(path.read_text(encoding="utf-8"))):
            messages = [message_of(raised) for raised in own_raises(node)]
            found[file, name] = Texts(ast.get_docstring(node), [text for text in messages if text is not None])
    return found


def pairs(before: Mapping[Key, Texts], after: Mapping[Key, Texts]) -> list[tuple[Key, Key]]:
    """Definitions of both trees, in the order of the second."""
    moved: dict[str, list[list[Key]]] = defaultdict(lambda: [[], []])
    for version, tree in enumerate((before, after)):
        for key in tree:
            if key[1] and not (key in before and key in after):
                head, *rest = key[1].split(".")
                moved[".".join([head.removesuffix("Program"), *rest])][version].append(key)
    by_new_name = {new[0]: old[0] for old, new in moved.values() if len(old) == len(new) == 1}
    return [(key if key in before else by_new_name[key], key) for key in after if key in before or key in by_new_name]


def cell(text: str) -> str:
    """Text for one cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", "<br>")


def table(rows: list[tuple[str, str, str]]) -> str:
    lines = ["| where | before | after |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{where}` | {cell(old)} | {cell(new)} |" for where, old, new in rows])


def side_by_side(before: Path, after: Path, seed: int) -> str:
    """Two tables: random docstrings, and random messages, that both trees have.

    Parameters
    ----------
    before, after : Path
        Folders of the package in both versions.
    seed : int
        Seed of the choice.
    """
    old, new = texts_of(before), texts_of(after)
    docstrings, messages = [], []
    for first, second in pairs(old, new):
        where = ":".join(part for part in second if part)
        texts, others = old[first], new[second]
        if texts.docstring and others.docstring:
            docstrings.append((where, texts.docstring, others.docstring))
        if len(texts.messages) == len(others.messages):
            messages += [(where, *both) for both in zip(texts.messages, others.messages, strict=True)]
    rng = random.Random(seed)
    chosen = [
        sorted(rng.sample(rows, min(n, len(rows)))) for rows, n in ((docstrings, DOCSTRINGS), (messages, MESSAGES))
    ]
    heads = (f"{len(chosen[0])} of {len(docstrings)} docstrings", f"{len(chosen[1])} of {len(messages)} messages")
    return "\n\n".join(f"## {head}\n\n{table(rows)}" for head, rows in zip(heads, chosen, strict=True)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="folder of the package in the older version")
    parser.add_argument("--after", type=Path, default=Path("src/zerosum"), help="folder of the package")
    parser.add_argument("--seed", type=int, default=1, help="seed of the choice")
    options = parser.parse_args()
    print(side_by_side(options.before, options.after, options.seed), end="")


if __name__ == "__main__":
    main()
