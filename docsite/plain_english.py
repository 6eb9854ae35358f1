"""Lint for the language of the project: words and phrases that plain technical English does not need.

`make lint` runs this module over the source, `examples/` and `docsite/` (docstrings, comments, and string literals of
three words or more, which are messages, help texts and texts of reports), over the Markdown pages and over the text
cells of the notebooks. A hit is printed as `file:line: word: use ...`. Exempt are

- code: fenced and indented blocks, inline code between backticks, HTML comments, doctest lines, and the fields in
  braces of an f-string;
- versions of CHANGELOG.md that have been published (only `[Unreleased]` is checked);
- files under `QUOTATIONS`, whose literals are data;
- a line with a marker and a reason: `# plain-english: <reason>` at the end of a line of Python, which covers the whole
  string that ends there, or `<!-- plain-english: <reason> -->` on a line of Markdown or on the line before it;
- packages and pages in `PENDING`, which are still to be rewritten. One without hits must leave that tuple.

`WORDS` is a list of words that were used as idiom in 0.2 and that have a plain replacement. The list is not a grammar
check: words such as `says` or `what`, which plain English needs at times, are left to reviewers.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/zerosum")

# regular expression (a space matches any white space) -> suggestion
WORDS = {
    "told": "'given', 'informed', 'shown' or the name of the message",
    "tells": "'gives', 'shows', 'reveals' or 'determines'",
    "heard": "'received' or 'recorded'",
    "hears?(?! from)": "'receives'",
    "overhears?|overheard": "'records' or 'observes'",
    "whoever|whomever|whosoever": "the noun: 'a reader', 'a caller', 'an attacker', 'a site'",
    "nobody": "the noun: 'no site', 'no unit', 'no reader'",
    "everybody": "the noun: 'all units', 'all people', 'every site'",
    "so many|so few|so often": "the number or its name: 'k units', 'at most once per second'",
    "feign(?:s|ed|ing)?": "'produce a false', 'bias', 'imitate'",
    "drown(?:s|ed|ing)?": "'fall below the noise'",
    "in earnest": "'in a real study', 'in production'",
    "that which|those which": "the noun",
    "as ever": "'unchanged', 'the default'",
    "knock(?:s|ed|ing)?": "'connect', 'send a request'",
    "strangers?": "'an unauthenticated client', 'another user', 'an outsider'",
    "in vain": "'without effect'",
    "lest": "'so that ... not'",
    "of old": "'of an earlier version'",
    "what is so": "'the properties'",
    "aloud": "'in the log', 'in the report'",
}
_FORBIDDEN = re.compile(
    r"(?<![\w-])(?:"
    + "|".join(f"(?P<w{at}>{word})" for at, word in enumerate(WORDS)).replace(" ", r"\s+")
    + r")(?!\w)",
    re.IGNORECASE,
)
SUGGESTIONS = list(WORDS.values())

# Packages and pages with hits; "src/zerosum" are the modules that lie in that folder itself.
PENDING: tuple[str, ...] = ()

# This module holds the word list: its literals are data.
QUOTATIONS = (Path("docsite/plain_english.py"),)
SOURCES = ("src/zerosum/**/*.py", "examples/*.py", "docsite/*.py")
NOTEBOOKS = "docs/notebooks/*.ipynb"
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/*.md")

_MARKER = re.compile(r"plain-english: \S")
_MASK = "\0"  # stands for a character that is not checked; no word and no phrase goes across it
_PROSE = 3  # words from which on a string literal is a message and not a key


class Hit(NamedTuple):
    """One forbidden word at one place."""

    path: str
    line: int
    word: str
    suggestion: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word}: use {self.suggestion}"


def hits_in_text(text: str, path: str) -> list[Hit]:
    """Every forbidden word of a text from which code has been masked."""
    return [
        Hit(path, text.count("\n", 0, at.start()) + 1, " ".join(at[0].split()), SUGGESTIONS[int(str(at.lastgroup)[1:])])
        for at in _FORBIDDEN.finditer(text)
    ]


# ---- Python ------------------------------------------------------------------------------------------------------


def python_prose(source: str) -> str:
    """The docstrings, comments and messages of a module at their places, with everything else masked.

    >>> python_prose('x = "told"  # heard').split("\\0")[-1].strip()
    'heard'
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    shown = list(re.sub(r"\S", _MASK, source))
    lines = source.splitlines()
    for first, last in _comments(source, starts):
        shown[first:last] = source[first:last].replace("#", " ", 1)
    for node in _strings(ast.parse(source)):
        if _MARKER.search(lines[(node.end_lineno or 0) - 1]):
            continue
        first = _offset(lines, starts, node.lineno, node.col_offset)
        last = _offset(lines, starts, node.end_lineno or 0, node.end_col_offset or 0)
        shown[first:last] = _literal(source[first:last], formatted=isinstance(node, ast.JoinedStr))
    return "".join(shown)


def _comments(source: str, starts: list[int]) -> Iterator[tuple[int, int]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not _MARKER.search(token.string):
            first = starts[token.start[0] - 1] + token.start[1]
            yield first, first + len(token.string)


def _strings(tree: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Docstrings, and literals of enough words to be prose; of an f-string the whole, not its parts."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as docstring):
                yield docstring
            case ast.JoinedStr(values=parts):
                if len(" ".join(str(part.value) for part in parts if isinstance(part, ast.Constant)).split()) >= _PROSE:
                    yield node
            case ast.Constant(value=str(text)):
                if len(text.split()) >= _PROSE:
                    yield node
            case _:
                pending.extend(ast.iter_child_nodes(node))


def _offset(lines: list[str], starts: list[int], line: int, column: int) -> int:
    """The character at a place that `ast` gives as a line and a count of UTF-8 bytes."""
    return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())


def _literal(text: str, *, formatted: bool) -> str:
    """A literal with its quotes as spaces, without inline code, doctests and the fields of an f-string."""
    text = re.sub(r"^\s*(?:>>>|\.\.\.).*$", _blank, text, flags=re.MULTILINE)
    text = re.sub(r"``.*?``|`[^`\n]*`", _blank, text, flags=re.DOTALL)
    if formatted:
        text = re.sub(r"\{[^{}]*\}", _blank, text)
    return text.replace('"', " ").replace("'", " ")


# ---- Markdown ----------------------------------------------------------------------------------------------------

_CODE = [
    re.compile(r"^<!-- plain-english: \S.*? -->\n.*$|^.*<!-- plain-english: \S.*? -->$", re.MULTILINE),
    re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL),
    re.compile(r"(?<=\n\n) {4}.*\n(?:(?: {4}.*)?\n)*"),
    re.compile(r"<!--.*?-->|</?[a-z][^>]*>", re.DOTALL),  # comments and HTML tags
    re.compile(r"``.*?``|`[^`]*`", re.DOTALL),
    re.compile(r"(?<=\])\([^)\s]*\)"),  # the target of a link
]


def markdown_prose(text: str) -> str:
    """A page at its places, with blocks of code, inline code, comments, link targets and marked lines masked.

    >>> markdown_prose("`told` and heard").split("\\0")[-1]
    ' and heard'
    """
    for code in _CODE:
        text = code.sub(_blank, text)
    return text


def notebook_prose(text: str) -> str:
    """The text cells of a notebook, one line of the result for each cell: a hit's line is the number of its cell."""
    cells = json.loads(text)["cells"]
    prose = (markdown_prose("".join(cell["source"])) if cell["cell_type"] == "markdown" else "" for cell in cells)
    return "\n".join(" ".join(cell.split()) for cell in prose)


def unreleased(changelog: str) -> str:
    """A changelog up to its first published version."""
    return re.split(r"^## \[\d", changelog, maxsplit=1, flags=re.MULTILINE)[0]


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"\S", _MASK, found[0])


# ---- the tree ----------------------------------------------------------------------------------------------------


def package_of(module: Path) -> str:
    """The package below src/zerosum that a module belongs to; otherwise the folder of the module.

    >>> package_of(Path("src/zerosum/site/store/files.py")), package_of(Path("src/zerosum/errors.py"))
    ('src/zerosum/site', 'src/zerosum')
    """
    if not module.is_relative_to(PACKAGE):
        return module.parent.as_posix()
    return (PACKAGE / Path(*module.relative_to(PACKAGE).parts[:-1][:1])).as_posix()


def every_hit(root: Path) -> Iterator[tuple[str, Hit]]:
    """Every hit with its package or page, whether that is in `PENDING` or not."""
    for path in sorted(path for pattern in SOURCES for path in root.glob(pattern)):
        name = path.relative_to(root)
        if not any(name.is_relative_to(quotation) for quotation in QUOTATIONS):
            for hit in hits_in_text(python_prose(path.read_text(encoding="utf-8")), name.as_posix()):
                yield package_of(name), hit
    for path in sorted(path for pattern in PAGES for path in root.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        text = unreleased(text) if path.name == "CHANGELOG.md" else text
        for hit in hits_in_text(markdown_prose(text), path.relative_to(root).as_posix()):
            yield hit.path, hit
    for path in sorted(root.glob(NOTEBOOKS)):
        for hit in hits_in_text(notebook_prose(path.read_text(encoding="utf-8")), path.relative_to(root).as_posix()):
            yield hit.path, hit


def main() -> int:
    """Print every hit outside `PENDING`; 1 if there is one, or if an entry of `PENDING` has no hit."""
    hits = list(every_hit(ROOT))
    found = [hit for place, hit in hits if place not in PENDING]
    clean = sorted(set(PENDING) - {place for place, _ in hits})
    for hit in found:
        print(hit)
    for place in clean:
        print(f"docsite/plain_english.py: {place} has no hits: take it out of PENDING")
    if len(hits) > len(found):
        print(f"plain English: {len(hits) - len(found)} words are left in {len(PENDING)} packages and pages (PENDING)")
    return int(bool(found or clean))


if __name__ == "__main__":
    sys.exit(main())
