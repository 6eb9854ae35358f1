"""Inserts the shared docstring fragments of the estimators, for MkDocs.

mkdocstrings reads docstrings from the source files, where `%(name)s` stands for a fragment of
`zerosum.estimators.documentation`. This extension of griffe replaces the placeholders, as the decorator `documented`
does when the package is imported.
"""

from __future__ import annotations

from typing import Any

from griffe import Extension, Object

from zerosum.estimators.documentation import fill


class Fragments(Extension):
    """Fills the docstrings of classes and functions in `zerosum.estimators`."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Called by griffe for every object, after its docstring is read."""
        if obj.docstring is not None and obj.path.startswith("zerosum.estimators"):
            obj.docstring.value = fill(obj.docstring.value)
