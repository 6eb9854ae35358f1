"""Fault injection: replaces source text of a function for the duration of a `with` block, in this process only.

The function object keeps its identity and gets a new code object, compiled from its own source with the text replaced.
All importers, registrations and subclasses therefore run the faulty code. A fault whose text no longer exists in the
source is refused, so that the catalogue cannot become outdated unnoticed.
"""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, singledispatchmethod
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from zerosum.errors import BadParameter


@dataclass(frozen=True)
class Edit:
    """Replacement of text in one function. `target` is `module:Class.method` below `zerosum`; the handler of a message
    type is `Class.method[Type]`."""

    target: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    """One fault: name, description and edits."""

    name: str
    wrong: str
    edits: tuple[Edit, ...]

    @property
    def where(self) -> str:
        """Dotted path of the first edited function."""
        return self.edits[0].target.replace(":", ".")

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """Apply the fault in this process until the block ends."""
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(_edited(edit))
            yield


@contextmanager
def _edited(edit: Edit) -> Iterator[None]:
    """Apply one edit. Caches of the function are cleared before and after."""
    function, forget = _find(edit.target)
    before = function.__code__
    function.__code__ = _compiled(function, edit)
    forget()
    try:
        yield
    finally:
        function.__code__ = before
        forget()


def _find(target: str) -> tuple[FunctionType, Callable[[], None]]:
    """The function without its wrappers, and a function that clears its cache."""
    module, path = target.split(":")
    found: Any = import_module(f"zerosum.{module}")
    for part in path.split("."):
        name, _, kind = part.rstrip("]").partition("[")
        found = inspect.getattr_static(found, name)
        if isinstance(found, singledispatchmethod):
            found = next(f for t, f in found.dispatcher.registry.items() if t.__name__ == kind)
    forget = getattr(found, "cache_clear", lambda: None)
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, cached_property):
        found = found.func
    elif isinstance(found, classmethod | staticmethod):
        found = found.__func__
    return inspect.unwrap(found), forget


def _compiled(function: FunctionType, edit: Edit) -> CodeType:
    """Code object of the function with the text replaced. Raises `BadParameter` unless the text occurs once."""
    # The source is read from the file, without earlier edits. A fault can therefore have one edit per function.
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(edit.old) != 1:
        raise BadParameter(f"{edit.target} has {edit.old!r} {source.count(edit.old)} times, a fault needs it once")
    changed = textwrap.indent(source.replace(edit.old, edit.new), "    ")
    whole = compile(
        # zero-argument `super()` needs the variable `__class__` of an enclosing scope
        f"def around(__class__):\n{changed}",
        f"<{edit.target} with a fault>",
        "exec",
        flags=__future__.annotations.compiler_flag,
        dont_inherit=True,
    )
    return next(code for code in _inside(whole) if code.co_name == function.__name__)


def _inside(code: CodeType) -> Iterator[CodeType]:
    """Yield all nested code objects."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _inside(each)
