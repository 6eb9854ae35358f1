"""HTML from jinja2 templates: one environment for reports, watch pages and notebooks.

Every value in a template is escaped, unless it is `Markup`. Invisible characters, such as those that reverse the
direction of writing, are written out. Names of studies, sites and columns come from other parties and reach a page only
in this way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from zerosum.kernel.names import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


@cache
def _environment() -> Environment:
    """The environment. Templates are named `report/...` and the like after the package that holds them.

    An undefined name in a template is an error (`StrictUndefined`), so that a misspelt field does not become an empty
    place on a page.
    """
    from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined  # needed for HTML only

    # Each package has its own folder of templates, beside the code that fills them.
    folders = {name: PackageLoader("zerosum", f"{name}/templates") for name in ("papers", "report", "watch")}
    return Environment(
        loader=PrefixLoader(folders),
        # By default jinja2 does not escape.
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_text,
        trim_blocks=True,
        lstrip_blocks=True,
        # Templates do not change while a process runs; the check would look at the file for every page.
        auto_reload=False,
    )


def _text(value: Any) -> Any:
    """Value of an expression before it is escaped: Markup unchanged, None as nothing, all else as visible text."""
    if hasattr(value, "__html__"):
        return value
    return "" if value is None else visible(str(value))


def render(template: str, **values: Any) -> Markup:
    """Render a template.

    Parameters
    ----------
    template : str
        Name such as "watch/page.html".
    values : Any
        Variables of the template. All but `Markup` are escaped.
    """
    from markupsafe import Markup

    # A template with autoescape has escaped all values.
    return Markup(_environment().get_template(template).render(values))  # noqa: S704


def call(template: str, macro: str, /, *arguments: Any, **values: Any) -> Markup:
    """Call a macro of a template, for a part of a page.

    Parameters
    ----------
    template : str
        Name such as "watch/plan.html".
    macro : str
        Name of the macro in it.
    arguments, values : Any
        Its arguments. All but `Markup` are escaped.
    """
    text: Markup = getattr(_environment().get_template(template).module, macro)(*arguments, **values)
    return text


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> Markup:
    """Table for a notebook. Numbers have five digits.

    >>> table(["a"], [["<b>"]])
    Markup('<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>')
    """
    cells = [[f"{cell:.5g}" if isinstance(cell, float) else cell for cell in row] for row in rows]
    return call("report/notebook.html", "table", headings, cells, title)


def paragraphs(sentences: Iterable[str]) -> Markup:
    """Paragraphs for a notebook."""
    return call("report/notebook.html", "paragraphs", sentences)
