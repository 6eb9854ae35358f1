"""A fault: a few words of the source changed, for as long as a `with` block lasts, in this process only.

A function keeps its identity and gets another code object, compiled from its own source with the words exchanged. So
whoever imported it, registered it or inherited it runs the fault as well, and a fault whose words are no longer there
is refused: the list cannot go stale unnoticed.

Tested in tests/audit/test_mutations.py.
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
    """Words of one function and what stands in their place. `target` is `module:Class.method` below `zerosum`; the
    handler of a kind of message is `Class.method[Kind]`."""

    target: str
    old: str
    new: str


@dataclass(frozen=True)
class Fault:
    """One mistake: its name, what is wrong in a sentence, and the edits that make it so."""

    name: str
    wrong: str
    edits: tuple[Edit, ...]
    audible: bool = False  # whether an audit of a mean can hear it

    @property
    def where(self) -> str:
        return self.edits[0].target.replace(":", ".")

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """The fault, in this process, until the block ends."""
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(_edited(edit))
            yield


@contextmanager
def _edited(edit: Edit) -> Iterator[None]:
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
    """The function itself, whatever it is wrapped in, and how to forget what it remembers."""
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
    # what was edited before in the same function is not in its file: one edit for each function
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(edit.old) != 1:
        raise BadParameter(f"{edit.target} has {edit.old!r} {source.count(edit.old)} times, a fault needs it once")
    changed = textwrap.indent(source.replace(edit.old, edit.new), "    ")
    whole = compile(
        f"def around(__class__):\n{changed}",  # `super()` finds its class there
        f"<{edit.target} with a fault>",
        "exec",
        flags=__future__.annotations.compiler_flag,
        dont_inherit=True,
    )
    return next(code for code in _inside(whole) if code.co_name == function.__name__)


def _inside(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _inside(each)
