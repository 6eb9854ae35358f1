"""How the command line speaks: tables of 80 columns, progress in pipes, and what a shell is offered."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.table import Table

from zerosum.cli import _run, complete, terminal
from zerosum.cli.terminal import SECONDS, _Lines

LONG = "vital signs of four hospitals in the north"
STUDY = """
name = "NAME"
algorithm = "ALGORITHM"

[parameters]
columns = ["age", "systolic_pressure_at_rest", "outcome_of_treatment"]
lower = [0, 60, 0]
upper = [100, 200, 1]
MORE

[unit]
kind = "person"

[privacy]
epsilon = 2.0
delta = 1e-5

[scheme]
name = "SCHEME"
"""
BOX = re.compile(r"[┏┡└│┃├]")


def write(folder: Path, algorithm: str, more: str = "", scheme: str = "secure-sum") -> Path:
    text = STUDY.replace("NAME", LONG).replace("ALGORITHM", algorithm).replace("MORE", more).replace("SCHEME", scheme)
    rng = np.random.default_rng(1)
    for at in range(4):
        rows = rng.uniform(0, 1, (60, 3)) * [100, 140, 1] + [0, 60, 0]
        lines = ["age,systolic_pressure_at_rest,outcome_of_treatment", *(",".join(f"{v:.2f}" for v in r) for r in rows)]
        (folder / f"{at}.csv").write_text("\n".join(lines) + "\n")
        policy = f'{{ population = "patients of hospital number {at}", trusted_coordinator = true, epsilon = 100 }}'
        text += f'\n[[sites]]\nname = "hospital number {at}"\ndata = "{at}.csv"\npolicy = {policy}\n'
    path = folder / f"{algorithm}-{scheme}.toml"
    path.write_text(text)
    return path


def assert_fits(text: str) -> None:
    """No table is wider than 80 columns, and nothing in one is left out or a number broken in two."""
    drawn = [line for line in text.splitlines() if BOX.match(line)]
    assert drawn
    assert max(map(cell_len, drawn)) <= 80
    assert "…" not in "".join(drawn)
    for line in drawn:
        for cell in re.split("[│┃]", line)[1:-1]:
            assert not re.search(r"\d\.$", cell.strip()), line


@pytest.fixture
def narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZEROSUM_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(terminal.out, "width", 80)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert _run([str(each) for each in arguments]) == 0
    return capsys.readouterr().out


def test_tables_of_studies_fit_80_columns(narrow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    helped = write(narrow, "mean", scheme="cape-helper")
    assert_fits(said(capsys, "plan", helped))
    assert_fits(said(capsys, "run", helped, "--out", narrow / "mean"))
    assert_fits(said(capsys, "run", write(narrow, "mixture", "n_components = 2"), "--out", narrow / "mixture"))
    listed = said(capsys, "results")
    assert max(map(cell_len, listed.splitlines())) <= 80
    assert_fits(said(capsys, "results", "show", re.findall(r"^([0-9a-f]{12})", listed)[0]))
    assert_fits(said(capsys, "ledger", "show"))


def test_tables_of_regressions_and_calculators_fit_80_columns(narrow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit = write(narrow, "linear-regression", "rounds = 3")
    assert_fits(said(capsys, "run", fit, "--out", narrow / "linear"))
    common = ("--sites", "4", "--colluders", "1", "--sensitivity", "1", "--delta", "1e-5")
    assert_fits(said(capsys, "account", "--scheme", "cape-published", *common, "--tau", "1"))
    unequal = ("--units", "100,200,300,400", "--combine", "means", "--rounds", "1000")
    assert_fits(said(capsys, "account", "--scheme", "cape-published", *common, "--epsilon", "1", *unequal))
    weighted = ("--units", "100,200,300,400", "--combine", "weighted", "--rounds", "10", "--rate", "0.5")
    assert_fits(said(capsys, "account", "--scheme", "cape-helper", *common, "--epsilon", "1", *weighted))
    assert_fits(said(capsys, "audit", "--scheme", "cape-helper", "--samples", "1000"))
    figure, _, _ = said(capsys, "reproduce", "cape-delta", "--out", narrow / "figure").partition("written")
    assert "───" in figure
    assert max(map(cell_len, figure.splitlines())) <= 80


def test_show_columns_wide_estimate_is_split_into_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.out, "width", 80)
    columns = {f"a quantity number {at}": ["123.456789"] * 3 for at in range(12)}
    with terminal.out.capture() as captured:
        terminal._show_columns("column", ["a", "b", "c"], columns)
    assert_fits(captured.get())
    assert captured.get().count("123.456789") == 36


def test_show_table_narrow_terminal_keeps_numbers_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.out, "width", 40)
    table = Table("name", "number")
    table.add_row("a-word-that-is-longer-than-all-that-is-left-for-it", "-1234567.891e-12")
    with terminal.out.capture() as captured:
        terminal.show_table(table)
    assert "-1234567.891e-12" in captured.get()
    assert "…" not in captured.get()


def test_show_table_wide_table_drops_column_lines_before_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The widest table that a figure of the papers has."""
    monkeypatch.setattr(terminal.out, "width", 80)
    names = ("method", "calibration", "asked eps", "exact eps", "loss", "25 %", "75 %", "runs", "held out")
    numbers = ("0.3", "0.0175", "0.000861", "0.000794", "0.000923", "5", "0.00107")
    table = Table(*names)
    table.add_row("objective-perturbation", "published", *numbers)
    with terminal.out.capture() as captured:
        terminal.show_table(table)
    assert max(map(cell_len, captured.get().splitlines())) <= 80
    assert all(number in captured.get() for number in numbers)


# ---- progress ------------------------------------------------------------------------------------------------------


def test_progress_in_pipe_is_line_every_few_seconds_with_time_left() -> None:
    now = [0.0]
    lines = _Lines("counting", lambda: now[0])
    with terminal.err.capture() as captured:
        for done in range(1, 101):
            now[0] += 0.4
            lines.at("counting", done, 100)
    shown = captured.get().splitlines()
    assert len(shown) == int(40 / (SECONDS + 0.2))
    assert re.fullmatch(r"counting: 13 of 100\b.*\b35 s\b.*", shown[0])
    assert all(re.fullmatch(r"counting: \d+ of 100(.* \d+ s\b.*)?", line) for line in shown)
    assert "\x1b" not in captured.get()
    assert "\r" not in captured.get()


def test_progress_of_new_stage_has_own_pace() -> None:
    now = [0.0]
    lines = _Lines("starting", lambda: now[0])
    with terminal.err.capture() as captured:
        lines.at("starting", 1, 2)
        now[0] = 100.0
        lines.at("rounds", 0, 10)  # nothing is known of their pace yet
        now[0] = 106.0
        lines.at("rounds", 5, 10)
    first, second = captured.get().splitlines()
    assert first == "rounds: 0 of 10"
    assert re.fullmatch(r"rounds: 5 of 10\b.*\b6 s\b.*", second)


def test_cli_long_command_in_pipe_prints_progress(tmp_path: Path) -> None:
    """The real command, its patience taken away."""
    text = STUDY.replace("NAME", "s").replace("ALGORITHM", "survival").replace("MORE", "").replace("SCHEME", "local")
    start = text.index("columns")
    text = text[:start] + 'columns = ["t", "e"]\nedges = [0, 1, 2]\n' + text[text.index("\n[unit]") :]
    text += "".join(f'[[sites]]\nname = "s{at}"\nunits = 100\n' for at in range(3))
    (tmp_path / "study.toml").write_text(text)
    code = "from zerosum.cli import main, terminal; terminal.SECONDS = 0.05; main()"
    command = [sys.executable, "-c", code, "plan", "study.toml", "--what-if", "--runs", "16", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert re.search(r"^rehearsing: \d+ of \d+.* \d+ s\b", done.stderr, re.MULTILINE)
    assert "\x1b" not in done.stderr


# ---- completion ----------------------------------------------------------------------------------------------------


def completed(words: str, folder: Path) -> list[str]:
    """What bash is offered for the last of these words."""
    environment = {
        **os.environ,
        "_ZEROSUM_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    command = [sys.executable, "-c", "from zerosum.cli import main; main()"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.split()


def test_cli_completion_offers_commands_options_choices_and_files(tmp_path: Path) -> None:
    (tmp_path / "heart.toml").write_text("")
    (tmp_path / "heart.csv").write_text("")
    assert "--what-if" in completed("zerosum plan --wh", tmp_path)
    assert completed("zerosum plan hea", tmp_path) == ["heart.toml"]
    assert completed("zerosum compare heart.toml --schemes secu", tmp_path) == ["secure-sum"]
    assert complete.noisy_schemes("cape") == ["cape-published", "cape-helper"]
    assert complete.mistakes("spec") == ["spectral"]
    assert "cape-delta" in complete.experiments("ca")


def test_completion_of_studies_offers_toml_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "a.toml").write_text("")
    (tmp_path / ".hidden.toml").write_text("")
    (tmp_path / "b.csv").write_text("")
    assert complete.studies("") == ["studies/"]
    assert complete.studies("stu") == ["studies/"]
    assert complete.studies("studies/") == ["studies/a.toml"]
    assert complete.studies("./studies/a") == ["studies/a.toml"]
    assert complete.studies(f"{tmp_path}/studies/a") == [f"{tmp_path}/studies/a.toml"]
    assert complete.studies("nowhere/x") == []


def test_cli_show_completion_prints_script(tmp_path: Path) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "HOME": str(tmp_path)}
    command = [sys.executable, "-c", "from zerosum.cli import main; main()", "--show-completion", "bash"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "_ZEROSUM_COMPLETE" in done.stdout
    assert "--install-completion" in subprocess.run([*command[:-2], "--help"], capture_output=True, text=True).stdout
