"""The walk of a German hospital: its CSV as it is, a schema, and a study with the same bits as from a plain file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.command_line import as_json, zerosum
from zerosum.errors import BadStudy, CheckFailed
from zerosum.kernel.plan import Plan
from zerosum.site.schema import DataSchema
from zerosum.study import SiteFile, Study
from zerosum.study.site_data import Faults, load_for
from zerosum.study.site_schema import schema_text

PEOPLE = 40
CODE_BOOK: dict[str, dict[str, Any]] = {
    "Geburtsdatum": {"age_at": "2026-01-01", "range": [18, 110]},
    "Aufnahme": {"origin": "2025-01-01"},
    "CRP": {"thousands": ".", "labels": {"<5": 2.5}},
    "Größe": {"missing": True, "tokens": ["k.A."]},
    "Geschlecht": {"levels": ["f", "m"], "labels": {"w": "f", "weiblich": "f"}},
}
STUDY = """
name = "ward"
algorithm = "mean"

[parameters]
columns = ["Geburtsdatum", "Größe", "CRP", "Aufnahme"]
lower = [18, 1.2, 0, 0]
upper = [110, 2.2, 2000, 365]
missing = { "Größe" = 1.7 }

[unit]
kind = "person"

[privacy]
epsilon = 2.0
delta = 1e-5
random_state = 7

"""


def people() -> list[tuple[int, float, float, int, str]]:
    """Age, size, CRP, days since the origin, sex."""
    rng = np.random.default_rng(5)
    return [
        (
            int(rng.integers(20, 90)),
            round(float(rng.uniform(1.5, 2)), 2),
            round(float(rng.uniform(5, 1900)), 1),
            int(rng.integers(0, 300)),
            str(rng.choice(["f", "m"])),
        )
        for _ in range(PEOPLE)
    ]


def german(folder: Path, bad: str = "") -> None:
    """The file as the hospital's system writes it; `bad` replaces a cell."""
    lines = ["Patient;Geburtsdatum;Größe;CRP;Geschlecht;Aufnahme"]
    for at, (age, size, crp, days, sex) in enumerate(people()):
        day = np.datetime64("2025-01-01") + days
        y, m, d = str(day).split("-")
        size_cell = "k.A." if at == 3 else str(size).replace(".", ",")
        whole = f"{crp:,.1f}".replace(",", "x").replace(".", ",").replace("x", ".")
        sex_cell = {"f": ["w", "weiblich"][at % 2], "m": "m"}[sex]
        cell = bad if bad and at == 7 else "<5" if at == 5 else whole
        lines.append(f"p{at};15.06.{2025 - age};{size_cell};{cell};{sex_cell};{d}.{m}.{y}")
    (folder / "ward.csv").write_text("\n".join(lines) + "\n", encoding="latin-1")


def plain(folder: Path) -> None:
    """The same people in a plain file."""
    lines = ["Patient,Geburtsdatum,Größe,CRP,Geschlecht,Aufnahme"]
    for at, (age, size, crp, days, sex) in enumerate(people()):
        lines.append(f"p{at},{age},{'' if at == 3 else size},{2.5 if at == 5 else crp},{sex},{days}")
    (folder / "plain.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def hospital(folder: Path) -> Path:
    """A new site whose file names the CSV; its folder."""
    assert zerosum("site", "init", "ward", cwd=folder).returncode == 0
    home = folder / "ward"
    german(home)
    text = (home / "site.toml").read_text(encoding="utf-8")
    text = text.replace(
        'data = "data.csv" ', 'data = "ward.csv"\ndelimiter = ";"\nencoding = "latin-1"\nunit_column = "Patient" '
    )
    (home / "site.toml").write_text(text, encoding="utf-8")
    return home


def declare(home: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what the steward adds to the draft."""
    record = DataSchema.load(home / "schema.toml").model_dump()
    for name, own in entries.items():
        record["columns"][name] |= own
    (home / "schema.toml").write_text(schema_text(DataSchema.model_validate(record)), encoding="utf-8")


def test_hospital_with_german_spellings_declares_them_and_joins_a_study_with_the_same_bits(tmp_path: Path) -> None:
    home = hospital(tmp_path)
    drafted = as_json(zerosum("site", "schema", "--json", cwd=home))["schema"]["columns"]
    # The draft proposes what most cells need, and names the words that are left.
    assert drafted["Größe"]["decimal"] == ","
    assert drafted["Geburtsdatum"]["date"] == drafted["Aufnahme"]["date"] == "%d.%m.%Y"
    assert drafted["CRP"]["decimal"] == ","
    shown = zerosum("site", "schema", "--json", cwd=home)
    assert shown.returncode == CheckFailed.exit_code
    faults = json.loads(shown.stdout)["faults"]
    assert any("'CRP'" in fault and "data row 6" in fault and "labels" in fault for fault in faults), faults
    declare(home, CODE_BOOK)
    confirmed = as_json(zerosum("site", "schema", "--confirm", "--json", cwd=home))
    assert (confirmed["faults"], confirmed["warnings"], confirmed["confirmed"]) == ([], [], True)
    file, schema = SiteFile.load(home / "site.toml"), DataSchema.load(home / "schema.toml")
    plain(tmp_path)
    study = Study.load(write(tmp_path))
    asked: Plan = study.plan()
    unfit: Faults = []
    read = load_for(asked, file, schema, unfit)
    simple = SiteFile(name="ward", data=Path("plain.csv"), unit_column="Patient", folder=tmp_path)
    assert unfit == []
    assert read.rows.tobytes() == load_for(asked, simple, None, []).rows.tobytes()
    # The rehearsal with the schema has the same result as with the plain file, to the bit.
    results = [
        as_json(zerosum("run", path.name, "--out", f"r{at}", "--json", cwd=tmp_path))
        for at, path in enumerate((write(tmp_path), write(tmp_path, spelled=False)))
    ]
    assert results[0]["estimate"] == results[1]["estimate"]


@pytest.mark.parametrize(("cell", "word"), [("12.5", 'decimal = ","'), ("1O,5", 'decimal = ","')])
def test_cell_that_is_not_as_declared_is_named_at_the_desk_and_missing_at_a_serving_site(
    tmp_path: Path, cell: str, word: str
) -> None:
    home = hospital(tmp_path)
    zerosum("site", "schema", cwd=home)
    declare(home, {**CODE_BOOK, "CRP": {"tokens": ["<5"], "missing": True}})
    assert zerosum("site", "schema", "--confirm", cwd=home).returncode == 0
    german(home, cell)
    shown = json.loads(zerosum("site", "schema", "--json", cwd=home).stdout)
    assert any("'CRP'" in each and "data row 8" in each and word in each for each in shown["faults"]), shown["faults"]
    asked = Study.load(write(tmp_path)).plan()
    faults: Faults = []
    read = load_for(asked, SiteFile.load(home / "site.toml"), DataSchema.load(home / "schema.toml"), faults)
    assert np.isnan(read.rows[7, 2])
    assert np.isfinite(read.rows[8, 2])
    assert len(faults) >= 1


def test_site_file_with_labels_is_refused_with_their_present_place() -> None:
    with pytest.raises(ValueError, match=r"\[columns.NAME\]"):
        SiteFile(name="a", data=Path("a.csv"), labels={"sex": {"w": "f"}})  # type: ignore[call-arg]


def test_rehearsal_with_a_schema_that_is_not_there_is_refused(tmp_path: Path) -> None:
    german(tmp_path)
    study = Study.load(write(tmp_path))
    with pytest.raises(BadStudy, match=r"ward/schema\.toml"):
        study.run()


def write(folder: Path, *, spelled: bool = True) -> Path:
    """A study of three sites; with `spelled` the first of them reads the hospital's file by its schema."""
    rng = np.random.default_rng(11)
    for name in ("east", "west"):
        rows = np.column_stack(
            [rng.uniform(20, 90, 30), rng.uniform(1.5, 2, 30), rng.uniform(0, 900, 30), rng.uniform(0, 300, 30)]
        )
        text = "Geburtsdatum,Größe,CRP,Aufnahme\n" + "\n".join(",".join(f"{x:.2f}" for x in row) for row in rows)
        (folder / f"{name}.csv").write_text(text + "\n", encoding="utf-8")
    own = 'data = "plain.csv"\nunit_column = "Patient"\n'
    if spelled:
        own = 'data = "ward/ward.csv"\nunit_column = "Patient"\ndelimiter = ";"\n'
        own += 'encoding = "latin-1"\nschema = "ward/schema.toml"\n'
    own += 'policy = { population = "ward", data = "synthetic" }\n'
    sites = f'[[sites]]\nname = "ward"\n{own}' + "".join(
        f'\n[[sites]]\nname = "{name}"\ndata = "{name}.csv"\npolicy = {{ population = "{name}", data = "synthetic" }}\n'
        for name in ("east", "west")
    )
    path = folder / ("spelled.toml" if spelled else "simple.toml")
    path.write_text(STUDY + sites, encoding="utf-8")
    return path
