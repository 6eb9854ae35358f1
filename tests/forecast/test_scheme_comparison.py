"""One study under every scheme: on data that may be looked at, and on no others."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zerosum.errors import BadParameter, BadStudy, PolicyRefused
from zerosum.forecast import compare
from zerosum.study import Study

RANGED = {"columns": ["a", "b"], "lower": [0, 0], "upper": [10, 1]}


def study_of(folder: Path, data: str | None, **more: Any) -> Study:
    rng = np.random.default_rng(1)
    sites = []
    for at in range(3):
        rows = rng.uniform(0, 1, (40, 2)) * [10, 1]
        np.save(folder / f"{at}.npy", rows)
        policy = {} if data is None else {"policy": {"population": f"p{at}", "data": data, "ledger": f"{at}.sqlite"}}
        sites.append({"name": f"s{at}", "data": folder / f"{at}.npy", **policy})
    usual: dict[str, Any] = {"unit": {"kind": "person"}, "privacy": {"epsilon": 1.0, "delta": 1e-5}, "folder": folder}
    return Study(**{"name": "s", "algorithm": "mean", "parameters": RANGED, "sites": sites, **usual, **more})


def test_compare_private_data_are_refused_before_reading(tmp_path: Path) -> None:
    for data in (None, "private"):
        study = study_of(tmp_path, data)
        for path in tmp_path.glob("*.npy"):
            path.write_bytes(b"")
        with pytest.raises(PolicyRefused, match="private"):
            compare(study, ["local"])


def test_compare_every_scheme_at_equal_epsilon_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROSUM_STATE", str(tmp_path / "state"))
    study = study_of(tmp_path, "synthetic")
    steps: list[tuple[int, int]] = []
    found = compare(study, seeds=3, on_step=lambda done, planned: steps.append((done, planned)))
    lines = {line.heading: line for line in found.lines}
    assert lines["non-private"].error == 0
    assert lines["non-private"].epsilon is None
    ours = [lines[name] for name in ("pooled", "secure-sum", "local", "zero-sum", "pairwise", "cape-helper")]
    # A mean of few columns has Laplace noise: epsilon at delta 0, and about 2 delta less at delta.
    assert [line.epsilon for line in ours] == pytest.approx([1.0] * 6, abs=3e-5)
    assert all(0 < (line.low or 0) <= (line.error or 0) <= (line.high or 0) for line in ours)
    assert lines["local, as published"].epsilon != pytest.approx(1.0, rel=0.01)
    assert {line.trusted for line in found.lines} == {"coordinator", "noise dealer", "no one"}
    assert steps == sorted(steps)
    assert not list(tmp_path.glob("*.sqlite"))
    assert not (tmp_path / "state").exists()
    again = compare(study, ["local"], seeds=3)
    assert again.lines[0].error == lines["local"].error
    assert "nothing" in again.as_record()["spent"]


def test_compare_synthetic_people_need_made_up_option(tmp_path: Path) -> None:
    units = [{"name": f"s{at}", "units": 100} for at in range(3)]
    study = study_of(tmp_path, None, sites=units)
    with pytest.raises(BadStudy, match="--made-up"):
        compare(study, ["local"])
    found = compare(study, ["secure-sum,local"], seeds=4, made_up=True)
    assert [line.scheme for line in found.lines] == ["secure-sum", "local"]
    assert found.data != compare(study_of(tmp_path, "synthetic"), ["local"], seeds=2).data


def test_compare_counts_values_hidden_by_noise(tmp_path: Path) -> None:
    survival = {"algorithm": "survival", "parameters": {"columns": ["t", "e"], "edges": [0, 1, 2, 3, 4]}}
    study = study_of(tmp_path, None, **survival, privacy={"epsilon": 0.02, "delta": 1e-5})
    found = compare(study, ["non-private", "secure-sum", "local"], seeds=2, made_up=True, people=1200)
    lines = {line.heading: line for line in found.lines}
    assert lines["non-private"].hidden == 0
    assert lines["secure-sum"].hidden > 0
    assert lines["local"].hidden >= lines["secure-sum"].hidden
    faint = study.model_copy(update={"privacy": study.privacy.model_copy(update={"epsilon": 1e-3})})
    (line,) = compare(faint, ["local"], seeds=2, made_up=True, people=30).lines
    assert line.error is None
    assert "noise" in line.refused


def test_compare_scheme_that_cannot_run_gives_reason(tmp_path: Path) -> None:
    units = [{"name": f"s{at}", "units": 60} for at in range(4)]
    study = study_of(tmp_path, None, sites=units, coalition={"colluders": 2, "dropouts": 1})
    found = {line.scheme: line for line in compare(study, ["zero-sum,local"], seeds=2, made_up=True).lines}
    assert found["zero-sum"].error is None
    assert "colluders" in found["zero-sum"].refused
    assert found["local"].error is not None


@pytest.mark.parametrize(("schemes", "seeds", "word"), [(["nonsense"], 3, "nonsense"), (["all"], 1, "seeds")])
def test_compare_bad_parameter_is_refused(tmp_path: Path, schemes: list[str], seeds: int, word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        compare(study_of(tmp_path, "synthetic"), schemes, seeds=seeds)


def test_compare_people_with_several_rows_count_as_people(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    study = study_of(
        tmp_path, "synthetic", algorithm="histogram", parameters={"columns": ["a"], "edges": [0.0, 5.0, 10.0]}
    )
    for at in range(3):
        np.savez(
            tmp_path / f"{at}.npz", X=rng.uniform(0, 10, (60, 1)), columns=["a"], units=np.repeat(np.arange(20), 3)
        )
    files = tuple(file.model_copy(update={"data": tmp_path / f"{at}.npz"}) for at, file in enumerate(study.site_files))
    found = compare(study.model_copy(update={"site_files": files}), ["non-private,pooled"], seeds=4)
    assert found.lines[0].error == 0
    assert found.lines[1].error == pytest.approx(math.sqrt(2) / 0.27 / 60, rel=0.8)  # mu of epsilon 1 is 0.27
