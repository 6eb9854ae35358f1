"""Converters: REDCap exports with their dictionary and FHIR bulk files, from end to end."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from helpers.command_line import as_json, zerosum
from zerosum.data.fhir import FhirDefinitions, fhir_rows
from zerosum.data.redcap import read_dictionary
from zerosum.errors import BadData, BadStudy
from zerosum.study import SiteFile, Study

HEADINGS = (
    "Variable / Field Name,Form Name,Field Type,Field Label,"
    '"Choices, Calculations, OR Slider Labels",Text Validation Type OR Show Slider Number,Text Validation Min,'
    "Text Validation Max,Identifier?,Branching Logic (Show field only if...),Required Field?"
)
SHORT = (
    "field_name,form_name,field_type,field_label,select_choices_or_calculations,"
    "text_validation_type_or_show_slider_number,text_validation_min,text_validation_max,identifier,branching_logic,"
    "required_field"
)
FIELDS = """
record_id,a,text,Study number,,,,,,,
name,a,text,Name,,,,,y,,
dob,a,text,Date of birth,,date_dmy,,,y,,
age,a,text,Age,,integer,18,110,,,y
sex,a,radio,Sex,"1, Female | 2, Male | 3, Other, or unknown",,,,,,y
height,a,text,Height,,number_2dp_comma_decimal,"1,20","2,30",,,
bmi,a,calc,BMI,[weight]/[height],,,,,,
pregnant,a,yesno,Pregnant,,,,,,[sex] = '1',y
drugs,a,checkbox,Drugs,"1, Aspirin | A, Statin | -9, None",,,,,,
pain,a,slider,Pain,none | worst,,,,,,
enrolled,a,text,Enrolled,,date_ymd,2020-01-01,2024-12-31,,,y
grade,a,dropdown,Grade,"1, 2 | 2, 1",,,,,,y
comment,a,notes,Comment,,,,,,,
photo,a,file,Photo,,,,,,,
intro,a,descriptive,Welcome,,,,,,,
"""
ROW = {
    **{"record_id": "7", "name": "Ann Example", "dob": "1970-04-03", "age": "55", "sex": "1", "height": "1,72"},
    **{"bmi": "24.5", "pregnant": "", "drugs___1": "1", "drugs___a": "0", "drugs____9": "0", "pain": "12"},
    **{"enrolled": "2020-01-31", "grade": "1", "comment": "calls her mother", "photo": "[document]"},
}


def dictionary(folder: Path, heading: str = HEADINGS, fields: str = FIELDS) -> Path:
    path = folder / "dictionary.csv"
    path.write_text(heading + fields, encoding="utf-8")
    return path


def export(folder: Path, rows: int = 30) -> Path:
    """An export of people, a few with empty cells."""
    rng = random.Random(4)
    lines = [",".join(ROW)]
    for at in range(rows):
        own = ROW | {"record_id": str(at), "age": str(rng.randint(20, 90)), "sex": rng.choice("12")}
        own |= {"height": "" if at == 3 else f"1,{rng.randint(50, 99)}", "pain": str(rng.randint(0, 100))}
        lines.append(",".join(f'"{cell}"' for cell in own.values()))
    path = folder / "export.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("heading", [HEADINGS, SHORT])
def test_redcap_dictionary_gives_types_ranges_and_levels_without_data(tmp_path: Path, heading: str) -> None:
    found = read_dictionary(dictionary(tmp_path, heading))
    assert found.record == "record_id"
    assert found.left_out == ("name", "dob", "comment", "photo")
    columns = found.columns
    assert columns["age"] == {"type": "number", "missing": False, "range": [18, 110]}
    assert columns["sex"]["levels"] == ["Female", "Male", "Other, or unknown"]
    assert columns["sex"]["labels"] == {"1": "Female", "2": "Male", "3": "Other, or unknown"}
    assert columns["height"] == {"type": "number", "missing": True, "decimal": ",", "range": [1.2, 2.3]}
    assert columns["bmi"] == {"type": "number", "missing": True}
    assert columns["pregnant"]["missing"]  # by its branching logic
    assert {"drugs___1", "drugs___a", "drugs____9"} < set(columns)
    assert columns["pain"]["range"] == [0, 100]
    assert columns["enrolled"] == {"type": "number", "missing": False, "date": "%Y-%m-%d", "range": [18262, 20088]}
    # Codes that are the names of other choices: the codes are the levels.
    assert (columns["grade"]["levels"], columns["grade"]["labels"]) == (["1", "2"], {})


def test_redcap_dictionary_becomes_a_study_file_that_can_be_planned(tmp_path: Path) -> None:
    dictionary(tmp_path)
    done = zerosum("site", "convert-redcap", "dictionary.csv", "--study", "baseline.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    study = Study.load(tmp_path / "baseline.toml")
    plan = study.plan()
    assert plan.algorithm == "describe"
    assert "bmi" not in plan.question.columns  # a calculation has no range
    assert {"age", "sex", "enrolled"} < set(plan.question.columns)
    assert '# "bmi"' in (tmp_path / "baseline.toml").read_text()
    again = zerosum("site", "convert-redcap", "dictionary.csv", "--study", "baseline.toml", cwd=tmp_path)
    assert again.returncode != 0  # nothing is overwritten


def test_redcap_export_becomes_a_table_whose_schema_is_that_of_the_dictionary(tmp_path: Path) -> None:
    dictionary(tmp_path)
    export(tmp_path)
    assert zerosum("site", "init", "north", cwd=tmp_path).returncode == 0
    home = tmp_path / "north"
    command = ["site", "convert-redcap", "../dictionary.csv", "--export", "../export.csv", "--out", "records.parquet"]
    record = as_json(zerosum(*command, "--json", cwd=home))
    assert (record["rows"], record["unit_column"]) == (30, "record_id")
    table = pq.read_table(home / "records.parquet")
    assert {"name", "dob", "comment", "photo"}.isdisjoint(table.column_names)
    assert b"Ann Example" not in (home / "records.parquet").read_bytes()
    assert (home / "records.parquet").stat().st_mode & 0o077 == 0
    text = (home / "site.toml").read_text()
    (home / "site.toml").write_text(text.replace('"data.csv" ', '"records.parquet"\nunit_column = "record_id" '))
    found = as_json(zerosum("site", "schema", "--json", cwd=home))
    assert (found["faults"], found["warnings"]) == ([], [])
    assert found["schema"]["columns"]["sex"]["labels"]["1"] == "Female"
    assert found["schema"]["columns"]["height"]["decimal"] == ","
    assert as_json(zerosum("site", "schema", "--confirm", "--json", cwd=home))["confirmed"]
    assert SiteFile.load(home / "site.toml").rehearsed_schema() is not None


def test_redcap_study_runs_on_converted_exports_as_drafted(tmp_path: Path) -> None:
    dictionary(tmp_path)
    export(tmp_path)
    command = ["site", "convert-redcap", "dictionary.csv", "--export", "export.csv", "--study", "s.toml"]
    assert zerosum(*command, "--out", "records.parquet", cwd=tmp_path).returncode == 0
    text = (tmp_path / "s.toml").read_text()
    for name in ("north", "south", "west"):
        own = f'data = "records.parquet"\nunit_column = "record_id"\npolicy = {{ population = "{name}" }}'
        text = text.replace(f'name = "{name}"', f'name = "{name}"\n{own}')
    (tmp_path / "s.toml").write_text(text.replace("epsilon = 1.0", "epsilon = 8.0"))
    result = Study.load(tmp_path / "s.toml").run()
    assert result.estimate is not None


@pytest.mark.parametrize(
    ("heading", "fields", "word"),
    [
        (HEADINGS.replace("Field Type", "Type"), FIELDS, "Field Type"),
        (HEADINGS, FIELDS + "age,a,text,Again,,integer,,,,,\n", "'age'"),
        (HEADINGS, "", "no fields"),
    ],
)
def test_redcap_dictionary_with_a_fault_is_refused(tmp_path: Path, heading: str, fields: str, word: str) -> None:
    with pytest.raises(BadData, match=word):
        read_dictionary(dictionary(tmp_path, heading, fields))


def test_redcap_export_without_a_declared_column_is_refused(tmp_path: Path) -> None:
    dictionary(tmp_path)
    path = export(tmp_path)
    path.write_text(path.read_text().replace("drugs___a", "drugs___b"))
    command = ["site", "convert-redcap", "dictionary.csv", "--export", "export.csv", "--out", "r.parquet"]
    done = zerosum(*command, cwd=tmp_path)
    assert done.returncode != 0
    assert "'drugs___a'" in done.stderr
    assert not (tmp_path / "r.parquet").exists()
    assert zerosum("site", "convert-redcap", "dictionary.csv", "--out", "r.parquet", cwd=tmp_path).returncode != 0


# ---- FHIR ------------------------------------------------------------------------------------------------------------

VARIABLES = """
index = 2025-01-01

[variables.age]
kind = "age"
range = [18, 110]

[variables.sex]
kind = "sex"

[variables.diabetes]
kind = "condition"
codes = ["http://snomed.info/sct|44054006", "http://hl7.org/fhir/sid/icd-10|E11"]
days = [-3650, 0]

[variables.hba1c]
kind = "observation"
codes = ["http://loinc.org|4548-4"]
unit = "%"
range = [3, 20]

[variables.systolic]
kind = "observation"
codes = ["http://loinc.org|8480-6"]
value = "mean"
range = [60, 260]
"""


def coding(code: str) -> dict[str, Any]:
    system, _, own = code.partition("|")
    return {"coding": [{"system": "http://example.org", "code": "x"}, {"system": system, "code": own}]}


def observation(patient: str, code: str, day: str, value: Any, unit: str = "%") -> dict[str, Any]:
    return {
        "resourceType": "Observation",
        "subject": {"reference": f"Patient/{patient}"},
        "code": coding(code),
        "effectiveDateTime": day,
        "valueQuantity": {"value": value, "unit": unit},
    }


def pressure(patient: str, day: str, value: float) -> dict[str, Any]:
    part = {"code": coding("http://loinc.org|8480-6"), "valueQuantity": {"value": value, "unit": "mmHg"}}
    return observation(patient, "http://loinc.org|85354-9", day, None) | {"component": [part]}


def condition(patient: str, code: str, **more: Any) -> dict[str, Any]:
    subject = {"reference": f"Patient/{patient}"}
    return {"resourceType": "Condition", "subject": subject, "code": coding(code)} | more


RESOURCES: list[dict[str, Any]] = [
    {"resourceType": "Patient", "id": "b", "gender": "male", "birthDate": "1970-01-02"},
    {"resourceType": "Patient", "id": "a", "gender": "female", "birthDate": "1970-01-01"},
    {"resourceType": "Patient", "id": "c", "gender": "unknown", "birthDate": "1970"},
    condition("a", "http://snomed.info/sct|44054006", onsetDateTime="2020-05-01"),
    condition("b", "http://snomed.info/sct|44054006", onsetDateTime="2025-05-01"),  # after the index day
    condition("b", "http://snomed.info/sct|1", onsetDateTime="2020-05-01"),
    condition("c", "http://hl7.org/fhir/sid/icd-10|E11", recordedDate="2016-01-01T10:00:00Z"),
    observation("a", "http://loinc.org|4548-4", "2024-03-01T08:00:00Z", 7.5),
    observation("a", "http://loinc.org|4548-4", "2024-06-01T08:00:00Z", 8.0),
    observation("a", "http://loinc.org|4548-4", "2024-07-01", 58.0, "mmol/mol"),
    observation("a", "http://loinc.org|4548-4", "2025-02-01", 9.0),
    observation("b", "http://loinc.org|4548-4", "2024-03-01", "high"),
    observation("x", "http://loinc.org|4548-4", "2024-03-01", 5.0),
    pressure("b", "2024-03-01", 140),
    pressure("b", "2024-04-01", 145),
]
ROWS = [
    [55.0, "female", 1.0, 8.0, None],
    [54.0, "male", 0.0, None, 142.5],
    [None, "other", 1.0, None, None],
]


def bulk(folder: Path, resources: list[dict[str, Any]]) -> Path:
    """Bulk files: one for each kind of resource."""
    folder.mkdir(exist_ok=True)
    for kind in ("Patient", "Observation", "Condition"):
        lines = [json.dumps(each) for each in resources if each["resourceType"] == kind]
        (folder / f"{kind}.ndjson").write_text("\n".join(lines) + "\n")
    return folder


def definitions(folder: Path, text: str = VARIABLES) -> FhirDefinitions:
    (folder / "variables.toml").write_text(text)
    return FhirDefinitions.load(folder / "variables.toml")


def test_fhir_rows_are_those_of_the_patients_resources(tmp_path: Path) -> None:
    assert fhir_rows(definitions(tmp_path), bulk(tmp_path / "bulk", RESOURCES)) == ROWS


def test_fhir_rows_do_not_depend_on_order_or_on_other_patients(tmp_path: Path) -> None:
    known = definitions(tmp_path)
    for seed in range(5):
        mixed = random.Random(seed).sample(RESOURCES, len(RESOURCES))
        assert fhir_rows(known, bulk(tmp_path / "bulk", mixed)) == ROWS
    for at, gone in enumerate("abc"):
        reference = f"Patient/{gone}"
        rest = [e for e in RESOURCES if e.get("id") != gone and e.get("subject", {}).get("reference") != reference]
        assert fhir_rows(known, bulk(tmp_path / "bulk", rest)) == ROWS[:at] + ROWS[at + 1 :]


def test_fhir_resources_of_odd_form_count_as_nothing(tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        condition("a", "http://snomed.info/sct|44054006") | {"code": "E11"},
        condition("b", "http://snomed.info/sct|44054006") | {"subject": None},
        observation("b", "http://loinc.org|4548-4", "2024", 7.0),
        observation("b", "http://loinc.org|4548-4", "2024-01-01", float("nan")),
        observation("b", "http://loinc.org|4548-4", "2024-01-01", 7.0) | {"component": "x", "valueQuantity": 7.0},
    ]
    assert fhir_rows(definitions(tmp_path), bulk(tmp_path / "bulk", [*RESOURCES, *odd])) == ROWS


def test_fhir_folder_becomes_a_table_and_its_definitions_a_study(tmp_path: Path) -> None:
    definitions(tmp_path)
    bulk(tmp_path / "bulk", RESOURCES)
    command = ["site", "convert-fhir", "variables.toml", "--folder", "bulk", "--out", "fhir.parquet"]
    record = as_json(zerosum(*command, "--study", "study.toml", "--json", cwd=tmp_path))
    assert record["rows"] == 3
    assert list(pq.read_table(tmp_path / "fhir.parquet").to_pylist()[0].values()) == ROWS[0]
    assert record["columns"]["sex"]["levels"] == ["female", "male", "other"]
    assert "44054006" in record["columns"]["diabetes"]["definition"]
    assert Study.load(tmp_path / "study.toml").plan().question.columns[:2] == ("age", "diabetes")
    assert zerosum(*command, cwd=tmp_path).returncode != 0  # nothing is overwritten


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('codes = ["http://loinc.org|4548-4"]', 'codes = ["4548-4"]'),
        ('codes = ["http://loinc.org|4548-4"]', ""),
        ('kind = "age"', 'kind = "age"\nunit = "a"'),
        ("days = [-3650, 0]", "days = [-3650, 10]"),
        ("index = 2025-01-01", ""),
        ("range = [3, 20]", "range = [20, 3]"),
    ],
)
def test_fhir_definitions_with_a_contradiction_are_refused(tmp_path: Path, old: str, new: str) -> None:
    assert old in VARIABLES
    with pytest.raises(BadStudy):
        definitions(tmp_path, VARIABLES.replace(old, new))


def test_fhir_damaged_line_is_refused_without_its_content(tmp_path: Path) -> None:
    folder = bulk(tmp_path / "bulk", RESOURCES)
    (folder / "Condition.ndjson").write_text('{"resourceType": "Condition", "subject": "Ann Example\n')
    with pytest.raises(BadData) as refused:
        fhir_rows(definitions(tmp_path), folder)
    assert "Ann" not in str(refused.value) + refused.value.detail
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(BadData, match="patients"):
        fhir_rows(definitions(tmp_path), folder)
