"""Results that were spent on, listed, shown and written again; runs that are interrupted or cannot be written."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.command_line import STUDY, as_json, assert_refused, write_study, zerosum
from helpers.small_studies import make
from zerosum.coordinator.journal import Journal
from zerosum.errors import Refused

ROUNDS = STUDY.replace('"mean"', '"k-means"').replace("[unit]", "n_clusters = 1\nrounds = 1\n\n[unit]")


def test_cli_results_are_listed_shown_and_exported(tmp_path: Path) -> None:
    write_study(tmp_path)
    assert as_json(zerosum("results", "--json", cwd=tmp_path)) == []
    assert len(zerosum("results", cwd=tmp_path).stdout.splitlines()) == 1
    done = as_json(zerosum("run", "study.toml", "--out", "result", "--json", cwd=tmp_path))
    (line,) = as_json(zerosum("results", "--json", cwd=tmp_path))
    assert line["id"] == done["kept"]
    assert line["state"] == "done"
    assert line["spent"] == pytest.approx(dict.fromkeys(("s0", "s1", "s2"), 2.0), rel=1e-6)
    assert line["id"] in zerosum("results", cwd=tmp_path).stdout
    shown = as_json(zerosum("results", "show", line["id"][:6], "--json", cwd=tmp_path))
    assert shown["result"]["estimate"] == done["estimate"]
    table = zerosum("results", "show", line["id"], cwd=tmp_path).stdout
    assert "pressure" in table
    assert "60 to 200" in table
    again = as_json(zerosum("results", "export", line["id"], "--out", "again", "--json", cwd=tmp_path))
    assert again == {"folder": "again", "complete": True, "maps": []}
    for name in ("result.json", "plan.json", "estimate.npz"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "result" / name).read_bytes()
    assert_refused(zerosum("results", "export", line["id"], "--out", "again", "--json", cwd=tmp_path), "again")
    assert_refused(zerosum("results", "show", "nosuch", "--json", cwd=tmp_path), "'nosuch'")
    assert len(as_json(zerosum("ledger", "show", "--json", cwd=tmp_path))[0]["entries"]) == 1


def test_cli_results_list_on_narrow_terminal_is_not_cut(tmp_path: Path) -> None:
    write_study(tmp_path, STUDY.replace('"vitals"', '"vitals of three hospitals and of nobody else at all"'))
    done = as_json(zerosum("run", "study.toml", "--out", "result", "--json", cwd=tmp_path))
    listed = zerosum("results", cwd=tmp_path, width=80).stdout
    for whole in (done["kept"], done["study"], "mean", "1 of 1 round", "epsilon 2.0000", "done"):
        assert whole in " ".join(listed.split())
    shown = zerosum("ledger", "show", cwd=tmp_path, width=80).stdout
    assert "…" not in listed + shown
    assert max(map(len, shown.splitlines())) <= 80


def test_cli_results_remove_needs_yes_and_keeps_ledgers(tmp_path: Path) -> None:
    write_study(tmp_path)
    first, second = (
        as_json(zerosum("run", "study.toml", "--out", out, "--json", cwd=tmp_path))["kept"] for out in ("a", "b")
    )
    ledgers = {path: path.read_bytes() for path in (tmp_path / "state" / "ledgers").iterdir()}
    assert_refused(zerosum("results", "remove", first, "--json", cwd=tmp_path), "--yes")
    assert zerosum("results", "remove", first, cwd=tmp_path, stdin="n\n").returncode == 2
    assert zerosum("results", "remove", first, cwd=tmp_path, stdin="").returncode == 2
    assert_refused(zerosum("results", "remove", "--json", cwd=tmp_path), "result")
    assert len(as_json(zerosum("results", "--json", cwd=tmp_path))) == 2
    assert "ledgers" in zerosum("results", "remove", first, cwd=tmp_path, stdin="y\n").stdout
    assert as_json(zerosum("results", "remove", second[:8], "--yes", "--json", cwd=tmp_path)) == {"removed": [second]}
    assert as_json(zerosum("results", "--json", cwd=tmp_path)) == []
    assert not list((tmp_path / "state" / "results").iterdir())
    assert as_json(zerosum("results", "remove", "--not-begun", "--json", cwd=tmp_path)) == {"removed": []}
    assert {path: path.read_bytes() for path in (tmp_path / "state" / "ledgers").iterdir()} == ledgers
    assert len(as_json(zerosum("ledger", "show", "--json", cwd=tmp_path))[0]["entries"]) == 2


def test_cli_results_remove_not_begun_keeps_running_study(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "results"
    about: dict[str, Any] = {"study": "never", "journal": None, "program": None, "ledgers": {}}
    for n, id in enumerate("abc"):
        (folder / id).mkdir(parents=True)
        (folder / id / "about.json").write_text(json.dumps(about | {"began": f"2026-01-0{n + 1}"}))
    with Journal.create(folder / "b", make()):
        done = as_json(zerosum("results", "remove", "--not-begun", "--yes", "--json", cwd=tmp_path))
        assert done == {"removed": ["a", "c"]}
        assert_refused(zerosum("results", "remove", "b", "--yes", "--json", cwd=tmp_path), "run", error=Refused)
    assert [path.name for path in folder.iterdir()] == ["b"]


def test_cli_run_unwritable_output_is_refused_before_spending(tmp_path: Path) -> None:
    write_study(tmp_path)
    (tmp_path / "file").write_text("")
    for out in ("file/result", "/proc/result", "/dev/full/result"):
        done = zerosum("run", "study.toml", "--out", out, "--json", cwd=tmp_path)
        assert done.returncode == 2, done.stdout
    assert not (tmp_path / "state").exists()


def interrupted(folder: Path, at: int, *options: str, stage: str = "round") -> subprocess.CompletedProcess[str]:
    """A run that gets a Ctrl-C when so many rounds are done, or so much of another stage."""
    code = (
        "import os, signal, zerosum.cli.terminal as t\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job ignores it
        "from contextlib import contextmanager\n"
        "@contextmanager\n"
        "def study_progress():\n"
        f"    yield lambda seen: os.kill(os.getpid(), signal.SIGINT) if (seen.stage, seen.done) == {(stage, at)}"
        " else None\n"
        "t.study_progress = study_progress\n"
        "from zerosum.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "run", "study.toml", "--out", "result", *options]
    environment = {**os.environ, "ZEROSUM_STATE": str(folder / "state"), "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_cli_run_interrupted_in_rounds_reports_spent_epsilon(tmp_path: Path) -> None:
    write_study(tmp_path, ROUNDS)
    done = interrupted(tmp_path, 2, "--json")
    assert done.returncode == 130
    error = json.loads(done.stdout)["error"]
    assert error["type"] == "Interrupted"
    assert "2 of 4" in error["message"]
    (line,) = as_json(zerosum("results", "--json", cwd=tmp_path))
    assert f"{max(line['spent'].values()):.4f}" in error["message"]
    said = interrupted(tmp_path, 4)
    assert said.returncode == 130
    assert "4 of 4" in said.stderr
    stopped, released = as_json(zerosum("results", "--json", cwd=tmp_path))
    assert (stopped["state"], released["state"]) == ("stopped", "released")
    one = as_json(zerosum("results", "export", stopped["id"], "--out", "one", "--json", cwd=tmp_path))
    two = as_json(zerosum("results", "export", released["id"], "--out", "two", "--json", cwd=tmp_path))
    assert (one["complete"], two["complete"]) == (False, True)
    assert (tmp_path / "one" / "releases.npz").exists()
    assert json.loads((tmp_path / "two" / "result.json").read_text())["algorithm"] == "k-means"


@pytest.mark.parametrize("at", [0, 1])
def test_cli_run_interrupted_after_last_round_names_export_command(at: int, tmp_path: Path) -> None:
    write_study(tmp_path)
    done = interrupted(tmp_path, at, "--json", stage="writing")
    (line,) = as_json(zerosum("results", "--json", cwd=tmp_path))
    assert_refused(done, f"zerosum results export {line['id']}", code=128 + signal.SIGINT)
    assert "nothing" not in json.loads(done.stdout)["error"]["message"]


def test_cli_run_unwritable_result_stays_in_results(tmp_path: Path) -> None:
    write_study(tmp_path)
    code = (
        "import zerosum.cli.terminal as t\n"
        "from contextlib import contextmanager\n"
        "@contextmanager\n"
        "def study_progress():\n"
        "    from pathlib import Path\n"
        "    def look(seen):\n"
        "        if seen.stage == 'writing' and seen.done == 0:\n"
        "            Path('result').mkdir(), Path('result/x').write_text('')\n"
        "    yield look\n"
        "t.study_progress = study_progress\n"
        "from zerosum.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "run", "study.toml", "--out", "result", "--json"]
    environment = {**os.environ, "ZEROSUM_STATE": str(tmp_path / "state")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    (line,) = as_json(zerosum("results", "--json", cwd=tmp_path))
    assert_refused(done, f"zerosum results export {line['id']}")


def test_cli_run_interrupted_before_first_request_reports_nothing_spent(tmp_path: Path) -> None:
    write_study(tmp_path)
    code = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + (
        "from zerosum import Study\n"
        "Study.run = lambda *_, **_options: os.kill(os.getpid(), signal.SIGINT)\nfrom zerosum.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "run", "study.toml", "--out", "result", "--json"]
    environment = {**os.environ, "ZEROSUM_STATE": str(tmp_path / "state")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert_refused(done, "nothing", "spent", code=128 + signal.SIGINT)


# ---- tables, pictures and text for a paper --------------------------------------------------------------------------

LOGISTIC = """
name = "who falls ill"
algorithm = "logistic-regression"

[parameters]
columns = ["age", "sex", "ill"]
lower = [20, 0, 0]
upper = [90, 1, 1]
standardise = "dp"

[unit]
kind = "person"

[privacy]
epsilon = 4.0
delta = 1e-5
"""


@pytest.fixture(scope="module")
def logistic_result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a study whose result is in `result`."""
    folder = tmp_path_factory.mktemp("logistic")
    rng = np.random.default_rng(3)
    text = LOGISTIC
    for name in ("north", "east", "south"):
        age, sex = rng.uniform(30, 80, 300), rng.integers(0, 2, 300)
        ill = rng.random(300) < 1 / (1 + np.exp(-(0.06 * (age - 55) + sex - 0.5)))
        lines = [f"{a:.1f},{s},{int(i)}" for a, s, i in zip(age, sex, ill, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["age,sex,ill", *lines]) + "\n")
        text += f'\n[[sites]]\nname = "{name}"\ndata = "{name}.csv"\n'
        text += f'policy = {{ population = "{name}", data = "synthetic", ledger = "{name}.sqlite" }}\n'
    (folder / "study.toml").write_text(text)
    done = zerosum("run", "study.toml", "--out", "result", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Odds ratios" in done.stdout
    return folder


def test_cli_results_export_writes_ratios_that_match_the_result(logistic_result: Path, tmp_path: Path) -> None:
    result = str(logistic_result / "result")
    done = zerosum("results", "export", result, "--format", "csv", "--table", "odds_ratios", cwd=tmp_path)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    estimate = json.loads((logistic_result / "result" / "result.json").read_text())["estimate"]
    assert [row["term"] for row in rows] == ["age", "sex", "age", "sex"]
    assert float(rows[1]["estimate"]) == pytest.approx(math.exp(estimate["coefficients"][1]))
    assert float(rows[3]["conf_low"]) == pytest.approx(math.exp(estimate["pooled_interval_95"][1][0]))
    command = ("results", "export", result, "--format", "csv", "--out", "tables", "--per", "age=10")
    wanted = ("--contrast", "older men: 10*age + sex", "--margin", "sex=0,1")
    assert zerosum(*command, *wanted, cwd=tmp_path).returncode == 0
    assert {"odds_ratios.csv", "contrasts.csv", "predicted_probabilities.csv"} <= {
        path.name for path in (tmp_path / "tables").iterdir()
    }
    assert_refused(zerosum(*command, "--json", cwd=tmp_path), "exists already")


def test_cli_results_export_documents_have_labels_and_methods(logistic_result: Path, tmp_path: Path) -> None:
    result = str(logistic_result / "result")
    labels = ("--label", "age=Age", "--label", "sex=Male", "--per", "age=10")
    done = zerosum("results", "export", result, "--format", "latex", *labels, cwd=tmp_path)
    assert "Age (per 10) &" in done.stdout
    assert "logistic regression" in done.stdout
    assert zerosum("results", "export", result, "--format", "html", "--out", "t.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "t.html").read_text().startswith("<!DOCTYPE html>")
    assert_refused(zerosum("results", "export", result, "--format", "docx", "--json", cwd=tmp_path), "--out")
    assert_refused(zerosum("results", "export", result, "--json", cwd=tmp_path), "--out")
    stepped = zerosum("results", "export", result, "--out", "x", "--per", "age=1", "--json", cwd=tmp_path)
    assert_refused(stepped, "--format")
    unknown = zerosum("results", "export", result, "--format", "csv", "--table", "table1", "--json", cwd=tmp_path)
    assert_refused(unknown, "odds_ratios")


def test_cli_results_methods_and_pictures(logistic_result: Path, tmp_path: Path) -> None:
    result = str(logistic_result / "result")
    methods = as_json(zerosum("results", "methods", result, "--json", cwd=tmp_path))
    assert "epsilon 4 and delta 1e-05" in methods[1]
    assert "logistic regression of ill on age, sex" in zerosum("results", "methods", result, cwd=tmp_path).stdout
    assert as_json(zerosum("results", "picture", result, "--json", cwd=tmp_path)) == {"odds-ratios": "Odds ratios"}
    assert zerosum("results", "picture", result, "--out", "forest.pdf", "--per", "age=10", cwd=tmp_path).returncode == 0
    assert (tmp_path / "forest.pdf").read_bytes().startswith(b"%PDF")
    assert_refused(
        zerosum("results", "picture", result, "--out", "forest.gif", "--json", cwd=tmp_path), "svg, pdf, png"
    )
    none = zerosum("results", "picture", result, "--picture", "survival", "--out", "a.svg", "--json", cwd=tmp_path)
    assert_refused(none, "odds-ratios")
