"""The schema that a site declares: what it refuses, and that rows have no part in it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.site_service import ROWS, serve
from helpers.small_studies import make
from zerosum.compute.units import Units
from zerosum.errors import BadData, BadStudy, PolicyRefused
from zerosum.kernel.grid import MOST_UNITS
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedSite
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import Consent, Propose, Refusal
from zerosum.site.schema import ColumnSchema, DataSchema, column_refusals

TABLE = DataSchema(
    units=40,
    columns={
        "age": ColumnSchema(range=(18, 100)),
        "bmi": ColumnSchema(missing=True),
        "sex": ColumnSchema(type="category", levels=("f", "m")),
        "stage": ColumnSchema(levels=(1, 2, 3)),
    },
)


def refused(columns: list[str], categories: dict[str, Any] | None = None, rules: tuple[str, ...] = ()) -> list[str]:
    return [str(each) for each in column_refusals(TABLE, columns, categories or {}, dict.fromkeys(rules, 0.0))]


def test_column_that_fits_the_schema_is_not_refused() -> None:
    assert refused(["age", "sex", "stage"], {"sex": ["f", "x"], "stage": ["1", "9"]}) == []
    assert refused(["bmi"], rules=("bmi",)) == []


@pytest.mark.parametrize(
    ("columns", "categories", "word"),
    [
        (["weight"], {}, "'weight'"),
        (["bmi"], {}, "`missing`"),
        (["sex"], {}, "numbers"),
        (["sex"], {"sex": ["male", "female"]}, "categories"),
        (["stage"], {"stage": ["I", "II"]}, "categories"),
    ],
)
def test_column_that_does_not_fit_the_schema_is_refused(
    columns: list[str], categories: dict[str, Any], word: str
) -> None:
    (sentence,) = refused(columns, categories)
    assert word in sentence
    assert repr(columns[0]) in sentence


def test_schema_levels_are_compared_as_in_files() -> None:
    assert refused(["stage"], {"stage": [True, "x"]}) == []  # true is 1
    assert refused(["stage"], {"stage": [" 2 "]}) == []


def test_schema_of_units_hides_the_count_under_add_remove() -> None:
    people = Units.from_list([np.zeros((2, 3)), np.zeros((5, 3))])
    counted, hidden = (DataSchema.of(people, adjacency) for adjacency in Adjacency)
    assert (counted.units, hidden.units) == (2, None)
    assert (counted.rows_per_unit, counted.n_columns) == (5, 3)


def test_schema_file_with_a_fault_names_it(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    for text, word in [
        ("units = -1\n[columns.a]\n", "units"),
        ("kind = 'table'\n", "columns"),
        ("kind = 'images'\n", "images"),
        ("[columns.a]\nrange = [3, 1]\n", "range"),
        ("[columns.a]\nsecret = 1\n", "secret"),
        ("not toml", "TOML"),
    ]:
        path.write_text(text)
        with pytest.raises(BadStudy, match=word):
            DataSchema.load(path)
    with pytest.raises(BadStudy, match=r"absent\.toml"):
        DataSchema.load(tmp_path / "absent.toml")


def test_consent_gives_the_declared_number_whatever_was_read(tmp_path: Path) -> None:
    """The number of units comes from the schema; other data than declared are a fault at the site's desk."""
    plan = make("local")
    service = serve(tmp_path / "fits")
    reply = decode_reply(service.answer(bytes.fromhex(plan.digest()), encode(Propose(plan))))
    assert isinstance(reply, Consent)
    assert reply.units == len(ROWS)
    service.close()
    service = serve(tmp_path / "other", load=lambda plan: Units.from_rows(ROWS[1:]))
    reply = decode_reply(service.answer(bytes.fromhex(plan.digest()), encode(Propose(plan))))
    assert isinstance(reply, Refusal)
    assert isinstance(reply.error, BadData)
    assert not re.search(r"\d", str(reply.error))  # no number of units
    service.close()


def test_plan_is_refused_by_the_schema_before_data_are_read(tmp_path: Path) -> None:
    """Single records, another number of units: by what is declared, and `load` is not called."""

    def load(plan: object) -> Units:
        raise AssertionError("data were read")

    schema = DataSchema(units=40, rows_per_unit=3, n_columns=2)
    service = serve(tmp_path, load=load, schema=schema, unit="record")
    by_record = make("local", unit="record")
    crowd = make("local", sites=tuple(PlannedSite(f"s{s}", 39) for s in range(4)))
    for plan in (by_record, replace(crowd, unit="record")):
        reply = decode_reply(service.answer(bytes.fromhex(plan.digest()), encode(Propose(plan))))
        assert isinstance(reply, Refusal)
        assert isinstance(reply.error, PolicyRefused)
    service.close()


def test_schema_of_many_units_refuses_what_is_planned_for_fewer() -> None:
    many = DataSchema(most_units=MOST_UNITS, columns=TABLE.columns)
    plan = make("secure-sum", epsilon=1.0)
    assert list(many.refusals(plan, 0)) == []
    release = replace(plan.releases[0], statistic="triple_moment")
    (error,) = many.refusals(replace(plan, releases=(release,)), 0)
    assert "triple_moment" in str(error)
    # A fine grid and many sites: ten million units at each fit into 64 bits, 10^9 do not.
    sites = tuple(PlannedSite(f"s{at}") for at in range(100))
    wide = replace(plan, sites=sites, epsilon=25.0)
    assert list(TABLE.model_copy(update={"units": None}).refusals(wide, 0)) == []
    (error,) = many.refusals(wide, 0)
    assert "wrap" in str(error)


def test_schema_of_usual_size_keeps_its_digest() -> None:
    # The digest of this content without the field `most_units`.
    record = json.dumps(TABLE.model_dump(mode="json", exclude={"most_units"}), sort_keys=True)
    assert TABLE.digest() == hashlib.sha256(record.encode()).hexdigest()
    assert TABLE.model_copy(update={"most_units": MOST_UNITS}).digest() != TABLE.digest()
    assert DataSchema.of(Units(np.broadcast_to(np.zeros(1), (10**7 + 1, 1))), Adjacency.ADD_REMOVE).most_units == 10**9
