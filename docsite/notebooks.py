"""Notebooks of the documentation: run, and shown as pages.

`python docsite/notebooks.py` runs every notebook of docs/notebooks from its first cell and writes down what it prints
(`make notebooks`); a test compares. No Jupyter is needed for that: cells are run one after the other, and the value of
a cell's last expression is shown, as Jupyter would. While the site is built, MkDocs makes a page of each.
"""

from __future__ import annotations

import ast
import base64
import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"
Notebook = dict[str, Any]
Output = dict[str, Any]


def load(path: Path) -> Notebook:
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def run(notebook: Notebook) -> Notebook:
    """The notebook with the outputs of a fresh run."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _run_cell("".join(cell["source"]), names, count)
            cell = cell | {"execution_count": count, "outputs": outputs}
        cells.append(cell)
    return notebook | {"cells": cells}


def _run_cell(source: str, names: dict[str, Any], count: int) -> list[Output]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)  # noqa: S102  # our own pages
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)  # noqa: S307
    outputs: list[Output] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append({"output_type": "execute_result", "execution_count": count, "data": data, "metadata": {}})
    return outputs + [
        {"output_type": "display_data", "data": {"image/png": each, "text/plain": ["a figure"]}, "metadata": {}}
        for each in _figures()
    ]


def _figures() -> list[str]:
    """What was drawn, as Jupyter shows it after a cell."""
    from matplotlib import pyplot

    drawn = []
    for number in pyplot.get_fignums():
        buffer = io.BytesIO()
        pyplot.figure(number).savefig(buffer, format="png", dpi=90, metadata={"Software": None})
        drawn.append(base64.b64encode(buffer.getvalue()).decode())
    pyplot.close("all")
    return drawn


def said(notebook: Notebook) -> list[str]:
    """The words of all outputs, without pictures."""
    return [
        "".join(output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"])
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
        if output["output_type"] != "display_data"
    ]


def markdown(notebook: Notebook, name: str) -> str:
    """A notebook as a page."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [_shown(output, cell.get("metadata", {}).get("alt", "")) for output in cell["outputs"]]
    first, *rest = parts
    note = f"This page is a notebook: [download it]({name}) to run it in Jupyter. A test runs it."
    return "\n\n".join([first, note, *rest]) + "\n"


def _shown(output: Output, alt: str) -> str:
    if output["output_type"] == "stream":
        return _printed("".join(output["text"]))
    data = output["data"]
    if "image/png" in data:
        return f'<img class="output" alt="{alt}" src="data:image/png;base64,{data["image/png"]}">'
    if "text/html" in data:
        return f'<div class="output">{"".join(data["text/html"])}</div>'
    return _printed("".join(data["text/plain"]))


def _printed(text: str) -> str:
    return f'<div class="output" markdown>\n\n```text\n{text.rstrip()}\n```\n\n</div>'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs: every notebook becomes a page beside it."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            path = Path(file.abs_src_path or "")
            text = markdown(load(path), path.name)
            files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=text))
    return files


def main() -> None:
    import matplotlib

    matplotlib.use("agg")
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        path.write_text(json.dumps(run(load(path)), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.name}: run")


if __name__ == "__main__":
    main()
