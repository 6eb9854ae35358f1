"""The table [tree] of a study file: the tree of its plan, faults, and a run in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.small_studies import VITALS
from zerosum.errors import BadParameter, BadStudy
from zerosum.report.record import privacy_report
from zerosum.study import Study
from zerosum.study.checking import check_study

NAMES = tuple("abcdefg")


def study(folder: Path, tree: str, scheme: str = "secure-sum") -> Study:
    """A study file of seven sites with data, in its folder."""
    rng = np.random.default_rng(0)
    text = f'{VITALS}\n[coalition]\ncolluders = 1\n[scheme]\nname = "{scheme}"\n{tree}\n'
    for name in NAMES:
        rows = np.column_stack([rng.uniform(20, 90, 12), rng.uniform(90, 180, 12)])
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header="age,pressure", comments="", fmt="%.2f")
        (folder / f"{name}.policy.toml").write_text(
            f'population = "{name}"\ndata = "synthetic"\nledger = "{name}.sqlite"\n'
        )
        text += f'[[sites]]\nname = "{name}"\ndata = "{name}.csv"\npolicy = "{name}.policy.toml"\n'
    (folder / "study.toml").write_text(text)
    return Study.load(folder / "study.toml")


def test_study_fan_out_and_parents_give_the_same_tree(tmp_path: Path) -> None:
    balanced = study(tmp_path, "[tree]\nfan_out = 3").plan()
    explicit = study(tmp_path, '[tree.parents]\nd = "a"\ne = "a"\nf = "a"\ng = "b"').plan()
    assert balanced.parents == explicit.parents == {"d": "a", "e": "a", "f": "a", "g": "b"}
    assert balanced.public_digest == explicit.public_digest
    assert study(tmp_path, "").plan().public_digest != balanced.public_digest


@pytest.mark.parametrize(
    ("tree", "error"),
    [
        ("[tree]", BadStudy),
        ('[tree]\nfan_out = 2\nparents = { b = "a" }', BadStudy),
        ("[tree]\nfan_out = 1", BadParameter),
        ('[tree]\nparents = { b = "a", a = "b" }', BadParameter),
        ('[tree]\nparents = { b = "elsewhere" }', BadParameter),
    ],
)
def test_study_tree_that_is_none_is_refused(tree: str, error: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(error, match=r"tree|fan_out"):
        study(tmp_path, tree).plan()


def test_study_tree_of_other_scheme_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="secure-sum"):
        study(tmp_path, "[tree]\nfan_out = 2", "pooled").plan()


def test_study_along_tree_runs_in_one_process(tmp_path: Path) -> None:
    loaded = study(tmp_path, "[tree]\nfan_out = 2")
    result: Any = loaded.run()
    assert result.participants == (NAMES,)
    assert 20 < result.estimate["mean"].value[0] < 90


def test_study_report_and_check_state_the_tree(tmp_path: Path) -> None:
    loaded = study(tmp_path, "[tree]\nfan_out = 2")
    assert any("a (c (g), d), b (e, f)" in note for note in privacy_report(loaded.plan()).notes)
    assert [each.relays_for for each in check_study(loaded)][:3] == [("c", "g", "d"), ("e", "f"), ("g",)]
