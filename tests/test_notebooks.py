"""The notebooks of the documentation run, and say what they said when they were written down (`make notebooks`)."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

import pytest

import notebooks

BOOKS = sorted(notebooks.NOTEBOOKS.glob("*.ipynb"))


def test_notebooks_exist() -> None:
    assert len(BOOKS) >= 3


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_notebook_run_gives_stored_output(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("ZEROSUM_STATE", str(tmp_path / "state"))
    book = notebooks.load(path)
    with chdir(tmp_path):
        assert notebooks.said(notebooks.run(book)) == notebooks.said(book)
    assert not (tmp_path / "state").exists()  # nothing was spent on anybody's ledger
    assert all(cell["execution_count"] for cell in book["cells"] if cell["cell_type"] == "code")


def test_notebook_page_has_code_text_pictures_and_tables() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# A title"]},
        {"cell_type": "code", "source": ["print(1 + 1)\n", "3 * 4"], "outputs": [], "metadata": {}},
        {
            "cell_type": "code",
            "source": ["import matplotlib.pyplot as plt\n", "plt.plot([0, 1]);"],
            "outputs": [],
            "metadata": {"alt": "a line"},
        },
    ]
    found = notebooks.run({"cells": cells})
    assert notebooks.said(found)[:2] == ["2\n", "12"]
    page = notebooks.markdown(found, "book.ipynb")
    assert page.startswith("# A title\n\n")
    assert "(book.ipynb)" in page
    assert "```python\nprint(1 + 1)\n3 * 4\n```" in page
    assert 'alt="a line" src="data:image/png;base64,' in page


def test_notebook_failing_cell_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        notebooks.run({"cells": [{"cell_type": "code", "source": ["1 / 0"], "outputs": []}]})
