"""`zerosum plan --what-if` and `zerosum compare` as a user meets them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.cells import cell_len
from rich.text import Text

from helpers.small_studies import VITALS
from zerosum.cli import _run, load, terminal
from zerosum.cli.app import app

STUDY = f"""
{VITALS}
[[sites]]
name = "north"
units = 400

[[sites]]
name = "east"
units = 700

[[sites]]
name = "south"
units = 900
"""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZEROSUM_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(terminal.out, "width", 80)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path / "study.toml"


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert _run([str(each) for each in arguments]) == code
    return capsys.readouterr().out


def test_cli_what_if_shows_table_within_80_columns(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = said(capsys, "plan", study, "--what-if", "--target-error", "0.01", "--target-error", "age=0.5")
    assert max(map(cell_len, shown.splitlines())) <= 80
    for word in ("epsilon", "people", "sites", "colluders", "this study", "age", "pressure", "spent"):
        assert word in shown
    assert "epsilon 0.621" in shown


def test_cli_what_if_writes_json_and_picture(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "expected.svg"
    guess = ("--guess", "age=normal:60:15")
    record = json.loads(said(capsys, "plan", study, "--what-if", "--json", "--out", out, *guess))
    assert record["own"]["lines"][0]["sampling"] == pytest.approx(15 / 2000**0.5, rel=0.05)
    assert [each["epsilon"] for each in record["around"]["epsilon"]] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert record["target"] is None
    drawing = ET.parse(out).getroot()
    assert drawing.tag == f"{SVG}svg"
    assert len(drawing.findall(f".//{SVG}use")) >= 15  # one marker for each setting
    text = out.read_text()
    assert "var(--" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--what-if", "--out", "plan.json"), ".svg"),
        (("--what-if", "--out", "/dev/null/expected.svg"), "/dev/null"),
        (("--what-if", "--target-error", "x"), "--target-error"),
        (("--what-if", "--target-error", "weight=1"), "'weight'"),
        (("--what-if", "--guess", "age"), "COLUMN=SHAPE"),
        (("--what-if", "--guess", "height=uniform"), "'height'"),
        (("--what-if", "--like", "nowhere.csv"), "nowhere.csv"),
        (("--what-if", "--people", "0"), "people"),
        (("--what-if", "--r-squared", "1.5"), "r_squared"),
        (("--what-if", "--r-squared", "0.5"), "--r-squared"),
        (("--what-if", "--spectrum", "flat"), "--spectrum"),
        (("--what-if", "--separation", "3"), "--separation"),
        (("--what-if", "--rows", "50"), "--rows"),
        (("--people", "100"), "--what-if"),
        (("--spectrum", "flat"), "--what-if"),
        (("--rows", "50"), "--what-if"),
        (("--runs", "50"), "--what-if"),
        (("--target-error", "1"), "--what-if"),
    ],
)
def test_cli_what_if_bad_arguments_give_one_sentence(
    study: Path, arguments: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(said(capsys, "plan", study, *arguments, "--json", code=2))
    assert word in record["error"]["message"]
    assert "\n" not in record["error"]["message"]


def test_cli_what_if_like_public_file_uses_its_spread(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "public.csv").write_text("age,pressure\n" + "50,100\n70,180\n" * 50)
    record = json.loads(said(capsys, "plan", study, "--what-if", "--like", tmp_path / "public.csv", "--json"))
    assert record["own"]["lines"][0]["sampling"] == pytest.approx(10 / 2000**0.5, rel=0.05)


def test_cli_compare_schemes_on_synthetic_people_spends_nothing(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "schemes.svg"
    arguments = ("compare", study, "--made-up", "--schemes", "pooled,secure-sum,local", "--seeds", "2")
    shown = said(capsys, *arguments, "--out", out)
    assert max(cell_len(line) for line in shown.splitlines() if not line.startswith("picture: ")) <= 80
    assert "Spent" in shown
    paths = ET.parse(out).getroot().findall(f".//{SVG}path")
    assert sum("fill: #" in each.get("style", "") for each in paths) == 3  # one bar for each scheme
    record = json.loads(said(capsys, *arguments, "--json"))
    assert [each["scheme"] for each in record["schemes"]] == ["pooled", "secure-sum", "local"]
    assert not (tmp_path / "state").exists()


def test_cli_compare_and_what_if_on_private_data_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], study: Path
) -> None:
    text = STUDY
    for name in ("north", "east", "south"):
        (tmp_path / f"{name}.csv").write_text("age,pressure\n50,100\n")
        text = text.replace(f'name = "{name}"\n', f'name = "{name}"\ndata = "{name}.csv"\n')
    study.write_text(text)
    record = json.loads(said(capsys, "compare", study, "--schemes", "local", "--json", code=2))
    assert record["error"]["type"] == "PolicyRefused"
    for guess in (("--guess", "age=uniform"), ("--separation", "3"), ("--rows", "40"), ("--spectrum", "flat")):
        record = json.loads(said(capsys, "compare", study, *guess, "--json", code=2))
        assert "--made-up" in record["error"]["message"]
    record = json.loads(said(capsys, "plan", study, "--what-if", "--like", tmp_path / "east.csv", "--json", code=2))
    assert record["error"]["type"] == "PolicyRefused"


def test_cli_what_if_and_compare_show_values_hidden_by_noise(
    tmp_path: Path, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = STUDY.replace('"mean"', '"survival"').replace("1.0", "0.012")
    text = text.replace(
        'columns = ["age", "pressure"]\nlower = [0, 60]\nupper = [100, 200]',
        'columns = ["t", "e"]\nedges = [0, 1, 2, 3, 4, 5]',
    )
    study.write_text(text)
    shown = said(capsys, "plan", study, "--what-if", "--runs", "8")
    assert max(map(cell_len, shown.splitlines())) <= 80
    assert "Hidden" in shown
    assert "all, 5 (100 %)" in " ".join(shown.split())
    shown = said(capsys, "compare", study, "--made-up", "--seeds", "2", "--schemes", "local")
    assert max(map(cell_len, shown.splitlines())) <= 80
    assert "Hidden" in shown


def test_cli_what_if_of_classifier_shows_accuracy(
    tmp_path: Path, study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = STUDY.replace('"mean"', '"data-collaboration"')
    text = text.replace(
        'columns = ["age", "pressure"]\nlower = [0, 60]\nupper = [100, 200]',
        'classes = [0, 1]\nfeatures = { kind = "linear", lower = [0, 60], upper = [100, 200] }',
    )
    study.write_text(text)
    out = tmp_path / "expected.svg"
    options = ("--what-if", "--runs", "8", "--separation", "3", "--people", "900")
    shown = said(capsys, "plan", study, *options, "--out", out, "--target-error", "0.2")
    assert max(cell_len(line) for line in shown.splitlines() if not line.startswith("picture: ")) <= 80
    words = " ".join(shown.split())
    for word in ("accuracy", "2 normal classes", "3 standard deviations", "epsilon"):
        assert word in words
    assert "8 rehearsals" in words
    assert words.count(" ± ") > 10
    assert "without privacy" in out.read_text()
    record = json.loads(said(capsys, "plan", study, *options, "--out", out, "--runs", "99999", "--json", code=2))
    assert str(out) in record["error"]["message"]  # before anything is rehearsed
    record = json.loads(said(capsys, "plan", study, *options, "--json"))
    assert record["level"] == "accuracy"
    assert 0 <= record["own"]["without"] < record["own"]["expected"] < 0.7
    shown = said(capsys, "compare", study, "--made-up", "--seeds", "2", "--schemes", "non-private,local")
    assert "class" in shown


def test_cli_help_text_is_shown_without_markup_changes() -> None:
    """Neither markup nor `:a:` of an option is turned into something else."""
    load()
    for name, command in commands(typer.main.get_command(app)):
        for text in (command.help, *(getattr(each, "help", None) for each in command.params)):
            assert Text.from_markup(text or "").plain == (text or ""), name


def commands(command: Any, name: str = "zerosum") -> Iterator[tuple[str, Any]]:
    yield name, command
    for each, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{name} {each}")
