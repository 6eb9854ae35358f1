"""`zerosum describe` as a user meets it: data files or a study file in, a table out."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

from helpers.command_line import as_json, assert_refused
from helpers.command_line import zerosum_process as zerosum

QUESTION = (
    *("--range", "age=20:90", "--levels", "arm=p,q", "--levels", "stage=1,2,3", "--by", "arm", "--whole", "age"),
    *("--missing", "age=observed", "--missing-token", "age=NA", "--unit", "person", "--epsilon", "2"),
)
STUDY = """
name = "trial"
algorithm = "survival"

[parameters]
columns = ["time", "event", "arm"]
edges = [0, 1, 2, 3, 4]
events = ["alive", "dead"]
groups = ["p", "q"]

[unit]
kind = "person"

[privacy]
epsilon = 2.0
delta = 1e-5

[[sites]]
name = "north"
data = "north.csv"

[[sites]]
name = "south"
data = "south.csv"
"""


def write_sites(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("north", "south"):
        lines = ["age,arm,stage,time,event"]
        for at in range(400):
            age = "NA" if at % 9 == 0 else f"{rng.normal(55, 9):.0f}"
            lines.append(f"{age},{'pq'[at % 2]},{1 + at % 3},{rng.exponential(3):.2f},{('alive', 'dead')[at % 4 > 0]}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


def test_cli_describe_shows_table_within_80_columns(tmp_path: Path) -> None:
    write_sites(tmp_path)
    done = zerosum("describe", "north.csv", "south.csv", *QUESTION, "--out", "result", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "epsilon 2 at delta 1e-05" in done.stdout
    (kept,) = as_json(zerosum("results", "--json", cwd=tmp_path))
    again = zerosum("results", "show", kept["id"], cwd=tmp_path).stdout.splitlines()
    pairs = zip(lines[lines.index("Means") :], again[again.index("Means") :], strict=False)
    tables = [line for line, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]  # before the sentences
    assert {"Means", "Proportions", "Differences of means", "Units"} <= set(tables)
    assert max(map(len, tables)) <= 80
    assert (tmp_path / "result" / "result.json").exists()
    assert len(list((tmp_path / "state" / "ledgers").glob("*.sqlite"))) == 2


def test_cli_describe_reads_other_delimiters_and_encodings(tmp_path: Path) -> None:
    """As hospitals send them: one as it should be, one from a spreadsheet, one with tabs."""
    write_sites(tmp_path)
    north = (tmp_path / "north.csv").read_text().replace("age,", "größe,age,", 1).replace("\n", "\n1,")[:-2]
    (tmp_path / "east.csv").write_text(north.replace(",", ";"), encoding="latin-1")
    (tmp_path / "west.csv").write_text(north.replace(",", "\t"))
    files = ("north.csv", "east.csv", "west.csv")
    assert_refused(zerosum("describe", *files, *QUESTION, "--json", cwd=tmp_path), "--encoding")
    latin = ("--encoding", "east=latin-1")
    assert_refused(zerosum("describe", *files, *QUESTION, *latin, "--json", cwd=tmp_path), "--delimiter")
    said = (*latin, "--delimiter", "east=;", "--delimiter", "west=tab")
    assert as_json(zerosum("describe", *files, *QUESTION, *said, "--json", cwd=tmp_path))["table"]["mean"]
    wrong = ("--delimiter", "est=;")
    assert_refused(zerosum("describe", *files, *QUESTION, *wrong, "--json", cwd=tmp_path), "'est'")
    both = ("--delimiter", ";", "--delimiter", "west=tab", "--encoding", "latin-1")
    spread = zerosum("describe", "east.csv", "west.csv", *QUESTION, *both, "--json", cwd=tmp_path)
    assert as_json(spread)["table"]["mean"]


def test_cli_describe_json_has_every_number(tmp_path: Path) -> None:
    write_sites(tmp_path)
    record = as_json(zerosum("describe", "a=north.csv", "b=south.csv", *QUESTION, "--json", cwd=tmp_path))
    first = record["table"]["mean"][0]
    assert (first["group"], first["column"]) == ("all", "age")
    assert abs(first["mean"] - 55) < 5
    assert first["interval"][0] < first["mean"] < first["interval"][1]
    assert "means" in record["describe"]
    assert record["privacy"]["question"]["parameters"]["ranges"] == {"age": [20, 90]}


def test_cli_describe_plan_spends_nothing(tmp_path: Path) -> None:
    done = zerosum("describe", "north.csv", "south.csv", *QUESTION, "--plan", "--json", cwd=tmp_path)
    record = as_json(done)
    assert [release["statistic"] for release in record["releases"]] == [
        "grouped_moments",
        "grouped_ranks",
        "grouped_counts",
    ]
    assert sum(release["share"] for release in record["releases"]) == pytest.approx(1)
    assert not (tmp_path / "state").exists()


def test_cli_survival_study_is_shown_as_curves_by_describe_and_run(tmp_path: Path) -> None:
    write_sites(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    done = zerosum("describe", "study.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"Survival", "Median time", "Log-rank test"} <= set(done.stdout.splitlines())
    again = zerosum("run", "study.toml", "--out", "result", cwd=tmp_path)
    assert "Log-rank test" in again.stdout, again.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("north.csv", "south.csv"), "--epsilon"),
        (("north.csv", *QUESTION), "sites"),
        (("north.csv", "north.csv", *QUESTION), "name"),
        (("north.csv", "south.csv", "--epsilon", "1"), "--range"),
        (("north.csv", "south.csv", "--epsilon", "1", "--range", "age=20:90"), "--unit"),
        (("north.csv", "south.csv", "--epsilon", "1", "--range", "age=20"), "LOW:HIGH"),
        (("north.csv", "south.csv", "--epsilon", "1", "--range", "age"), "COLUMN=..."),
        (("north.csv", "south.csv", *QUESTION, "--range", "age=1:2"), "twice"),
        (("north.csv", "south.csv", *QUESTION, "--epsilon", "0"), "epsilon"),
        (("north.csv", "south.csv", *QUESTION, "--adjacency", "other"), "--adjacency"),
        (("north.csv", "south.csv", *QUESTION, "--missing-token", "NA"), "COLUMN=TOKEN"),
        (("study.toml", "--epsilon", "1"), "study"),
        (("other.toml",), "other.toml"),
    ],
)
def test_cli_describe_bad_arguments_are_refused_before_spending(
    arguments: tuple[str, ...], word: str, tmp_path: Path
) -> None:
    write_sites(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    assert_refused(zerosum("describe", *arguments, "--json", cwd=tmp_path), word)
    assert not (tmp_path / "state").exists()
