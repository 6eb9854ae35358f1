"""The list of figures, their printed tables, and the page with all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerosum.cli import _run, terminal
from zerosum.papers.figures import CATALOGUE, EXPERIMENTS
from zerosum.papers.figures.experiment import Experiment, Table
from zerosum.papers.figures.page import Picture, write_page


def test_catalogue_has_every_figure() -> None:
    assert set(CATALOGUE) == set(EXPERIMENTS)


def test_help_of_reproduce_lists_every_figure_with_its_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["reproduce", "--help"]) == 0
    shown = capsys.readouterr().out
    assert [name for name in EXPERIMENTS if name not in shown] == []
    assert "DP-djICA" in shown
    assert "d10, d50" in shown


def test_printed_table_has_the_spread_beside_its_value() -> None:
    shown = {"method": "method", "error": "error", "spread": "spread", "runs": "runs"}
    one = Experiment("x", lambda data, folder=None, **rest: [], lambda rows, path: None, lambda rows: rows, shown)
    lines: Table = [{"method": "a", "error": 0.12345, "spread": 0.01, "runs": 3}]
    assert one.printed(lines) == (["method", "error"], [["a", "0.1235 ± 0.01"]])


def test_page_of_all_figures_escapes_and_names_what_is_left_out(tmp_path: Path) -> None:
    pictures = [Picture("cape-delta", "cape-delta", 2.0), Picture("dc-mnist", "dc-mnist", 0.0, "no <folder>")]
    text = write_page(pictures, tmp_path, full=False).read_text("utf-8")
    assert '<img src="cape-delta.png"' in text
    assert CATALOGUE["dc-mnist"].claim in text
    assert "no &lt;folder&gt;" in text
    assert "dc-mnist.png" not in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("all", "--data", "mnist"), "--data"),
        (("all", "--full", "--quick"), "--quick"),
        (("cape-delta", "--seeds", "0"), "--seeds"),
        (("dc-mnist",), "--folder"),
    ],
)
def test_reproduce_bad_options_are_named(
    arguments: tuple[str, ...], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["reproduce", *arguments, "--out", str(tmp_path)]) != 0
    assert word in capsys.readouterr().err


def test_reproduce_all_writes_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {name: EXPERIMENTS[name] for name in ("cape-delta", "dc-mnist")}
    monkeypatch.setattr("zerosum.papers.figures.EXPERIMENTS", few)
    monkeypatch.setattr(terminal.out, "_width", 200)
    assert _run(["reproduce", "all", "--quick", "--out", str(tmp_path)]) == 0
    assert "1 figures" in capsys.readouterr().out
    assert (tmp_path / "index.html").exists()
    assert (tmp_path / "cape-delta.png").exists()
