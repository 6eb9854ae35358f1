"""The reference, made from the code while the site is built: entries of files, parameters, commands, modules.

A page has a comment at the place, which MkDocs replaces:

    <!-- code: entries PrivacyTable -->
    <!-- code: parameters -->
    <!-- code: commands -->
    <!-- code: modules -->

Names, types and defaults come from the code. The meaning of an entry is the string below its field or the comment
beside it; a parameter with neither has the text of its estimator's docstring. An entry without a meaning or an option
without help ends the build.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
import numpy as np
import typer.main
from griffe import Docstring, DocstringSectionParameters
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

import zerosum
import zerosum.cli
from zerosum.algorithms import ALGORITHMS
from zerosum.cli.app import app
from zerosum.data.design import Design
from zerosum.data.omop import CohortTable, Definitions, OutcomeTable, Records, Variable
from zerosum.data.sources import Source
from zerosum.estimators.base import JointEstimator
from zerosum.site.policy import Policy
from zerosum.site.schema import ColumnSchema, DataSchema, ImagesSchema
from zerosum.study import Study
from zerosum.study.entries import (
    CoalitionTable,
    ImagingTable,
    PermitTable,
    PrivacyTable,
    RosterTable,
    SchemeTable,
    TreeTable,
    UnitTable,
)
from zerosum.study.site_file import AuditTable, ConsentTable, LimitsTable, RolesTable, SiteFile

_HERE = re.compile(r"^<!-- code: (\w+)(?: (\w+))? -->$", re.MULTILINE)
_TABLES = (
    *(Study, UnitTable, PrivacyTable, CoalitionTable, SchemeTable, TreeTable, ImagingTable, RosterTable, Design),
    PermitTable,
    *(
        SiteFile,
        Source,
        ConsentTable,
        AuditTable,
        LimitsTable,
        RolesTable,
        DataSchema,
        ColumnSchema,
        ImagesSchema,
        Policy,
    ),
    *(Definitions, CohortTable, Records, OutcomeTable, Variable),
)
MODELS: dict[str, type[BaseModel]] = {model.__name__: model for model in _TABLES}
#: What a program fills in and a file must not hold.
_NOT_IN_FILES = {("Study", "site_files"), ("Study", "folder"), ("SiteFile", "folder"), ("Design", "sites")}


def fill(text: str) -> str:
    """A page with what it asks for."""
    return _HERE.sub(lambda found: _MAKERS[found[1]](*filter(None, [found[2]])), text)


def on_page_markdown(text: str, **_: Any) -> str:
    """Called by MkDocs with every page."""
    return fill(text)


# ---- files and algorithms ------------------------------------------------------------------------------------------


def entries(name: str) -> str:
    """The entries of a table of a file."""
    model = MODELS[name]
    rows = [
        (f"`{field.alias or entry}`", *_type_and_default(field), _meaning(model, entry))
        for entry, field in model.model_fields.items()
        if (name, entry) not in _NOT_IN_FILES
    ]
    return _table(("entry", "type", "default", "meaning"), rows)


def parameters() -> str:
    """The parameters of every algorithm."""
    parts = []
    for name, model in ALGORITHMS.items():
        rows = [
            (f"`{each}`", *_type_and_default(field), _meaning(model, each))
            for each, field in model.model_fields.items()
        ]
        parts.append(f"### {name}\n\n" + _table(("parameter", "type", "default", "meaning"), rows))
    return "\n".join(parts)


def _meaning(model: type[BaseModel], entry: str) -> str:
    for kind in model.__mro__:
        if said := _said_of_fields(kind).get(entry) or _documented(kind).get(entry):
            return _cell(said)
    for estimator in _estimators_of(getattr(model, "name", "")):
        if said := _documented(estimator).get(entry):
            return _cell(said)
    raise LookupError(f"{model.__name__}.{entry} has no meaning: write a string below the field that says it")


def _cell(text: str) -> str:
    """A docstring as one line of Markdown, in which an index [j][k] is no link."""
    return " ".join(text.split()).replace("][", "]\\[")


@cache
def _said_of_fields(kind: type) -> dict[str, str]:
    """The string below each field of a class, or the comment beside it."""
    if not kind.__module__.startswith("zerosum."):
        return {}
    source = inspect.cleandoc("\n" + inspect.getsource(kind))
    (tree,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    lines, found = source.splitlines(), {}
    for field, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        beside = lines[(field.end_lineno or 0) - 1].encode()[field.end_col_offset :].decode().strip()
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            found[field.target.id] = below.value.value
        elif beside.startswith("#"):
            found[field.target.id] = beside.removeprefix("#").strip()
    return found


@cache
def _documented(kind: type) -> dict[str, str]:
    """The parameters of a docstring in numpydoc's manner."""
    if not kind.__module__.startswith("zerosum."):
        return {}
    found: dict[str, str] = {}
    for section in Docstring(inspect.cleandoc(kind.__doc__ or "")).parse("numpy", warnings=False):
        if isinstance(section, DocstringSectionParameters):
            found |= {parameter.name: parameter.description for parameter in section.value}
    return found


def _estimators_of(algorithm: str) -> list[type]:
    public = [getattr(zerosum, name) for name in zerosum.__all__]
    kinds = [each for each in public if isinstance(each, type) and issubclass(each, JointEstimator)]
    return [kind for kind in kinds if getattr(kind, "_algorithm", None) == algorithm]


def _type_and_default(field: FieldInfo) -> tuple[str, str]:
    kind = _type(field.annotation, field.metadata)
    if field.is_required():
        return kind, "required"
    default = field.get_default(call_default_factory=True)
    return kind, _value(default)


def _type(kind: Any, rules: list[Any] | tuple[Any, ...] = ()) -> str:
    """A type in words, with its bounds."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(inner[0], (*inner[1:], *rules))
    if origin in (Union, types.UnionType):
        words = list(dict.fromkeys(_type(each, rules) for each in inner if each is not type(None)))
        return "value" if {"text", "number"} <= set(words) and "table" not in words else " or ".join(words)
    if origin is Literal:
        return ", ".join(_value(each) for each in inner)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(_value(each) for each in kind)
    if origin is tuple:
        if inner[-1] is Ellipsis:
            return "list"
        return f"list of {len(inner)}"
    if origin is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return "table"
    if kind in (np.ndarray,) or origin is np.ndarray:
        return "numbers"
    plain = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}.get(kind, "value")
    bounds = list(_bounds(rules)) if kind in (int, float) else []
    return f"{plain}, {' and '.join(bounds)}" if bounds else plain


def _bounds(rules: list[Any] | tuple[Any, ...]) -> Iterator[str]:
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    for rule in rules:
        for name, word in words.items():
            if isinstance(rule, annotated_types.GroupedMetadata | FieldInfo):
                continue
            if (bound := getattr(rule, name, None)) is not None:
                yield f"{word} {bound:g}"


def _value(value: Any) -> str:
    """A default as a file would say it."""
    match value:
        case None:
            return "none"
        case Enum():
            return f"`{value.value}`"
        case bool():
            return f"`{str(value).lower()}`"
        case BaseModel():
            return "its defaults"
        case str() | Path():
            return f"`{value}`"
        case () | []:
            return "empty"
        case dict() if not value:
            return "empty"
        case tuple() | list():
            return f"`[{', '.join(_value(each).strip('`') for each in value)}]`"
        case _:
            return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


# ---- commands ------------------------------------------------------------------------------------------------------


def every_command() -> dict[str, TyperCommand | TyperGroup]:
    """Every command by its words: `ledger show`."""
    zerosum.cli.load()
    return dict(sorted(_below(typer.main.get_command(app), "")))


def _below(command: Any, words: str) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    if isinstance(command, TyperGroup):
        if words and command.invoke_without_command:
            yield words, command
        for name, inner in command.commands.items():
            yield from _below(inner, f"{words} {name}".strip())
    else:
        yield words, command


def commands() -> str:
    """What every command takes."""
    return "\n".join(f"## zerosum {words}\n\n{_command(words, found)}" for words, found in every_command().items())


def _command(words: str, found: TyperCommand | TyperGroup) -> str:
    kinds = get_type_hints(found.callback)
    arguments = [each for each in found.params if isinstance(each, TyperArgument)]
    options = {
        each: max(each.opts, key=len) + ("" if each.is_flag else f" {_holder(kinds[each.name or ''])}")
        for each in found.params
        if isinstance(each, TyperOption) and not each.hidden and each.name in kinds
    }
    places = [(_name(each) + (" ..." if each.nargs == -1 else ""), each.required) for each in arguments]
    places += [(called + (" ..." if each.multiple else ""), each.required) for each, called in options.items()]
    usage = " ".join(["zerosum", words, *(place if required else f"[{place}]" for place, required in places)])
    rows = [(f"`{_name(each)}`", _help(each)) for each in arguments]
    rows += [(f"`{called}`", _help(each) + _default(each)) for each, called in options.items()]
    said = " ".join((found.help or "").split())
    if not said:
        raise LookupError(f"the command {words!r} has no help")
    return f"{said}\n\n```text\n{usage}\n```\n\n" + (_table(("takes", "meaning"), rows) if rows else "")


def _name(argument: TyperArgument) -> str:
    return (argument.metavar or argument.name or "").upper()


def _holder(kind: Any) -> str:
    """What stands for a value of an option in a line of usage."""
    inner = [each for each in get_args(kind) if each is not type(None)]
    return _holder(inner[0]) if inner else {int: "N", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT")


def _help(parameter: TyperArgument | TyperOption) -> str:
    said = getattr(parameter, "help", None)
    if not said:
        raise LookupError(f"{parameter.name!r} has no help")
    return " ".join(said.split()).rstrip(".")


def _default(option: TyperOption) -> str:
    if option.required:
        return "; required"
    if option.is_flag or option.default in (None, (), []) or callable(option.default):
        return ""
    return f"; default `{option.default}`"


# ---- modules -------------------------------------------------------------------------------------------------------


def modules() -> str:
    """Every module with the first line of its docstring, package by package."""
    source = Path(inspect.getfile(zerosum)).parent
    folders = sorted({path.parent for path in source.rglob("*.py")})
    return "\n".join(_package(folder, source) for folder in folders)


def _package(folder: Path, source: Path) -> str:
    paths = sorted(folder.glob("*.py"), key=lambda path: (path.name != "__init__.py", path.name))
    rows = [(f"`{path.name}`", _first_line(path)) for path in paths if ast.parse(path.read_text("utf-8")).body]
    return f"## {folder.relative_to(source.parent).as_posix()}\n\n" + _table(("module", "content"), rows)


def _first_line(path: Path) -> str:
    said = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    if not said:
        raise LookupError(f"the module {path} has no docstring")
    return " ".join(said.split("\n\n")[0].split())


# ---- tables --------------------------------------------------------------------------------------------------------


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


_MAKERS: dict[str, Callable[..., str]] = {
    "entries": entries,
    "parameters": parameters,
    "commands": commands,
    "modules": modules,
}
