"""A study of topics from files: a public vocabulary in the study's file, documents at the sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from zerosum.errors import BadStudy
from zerosum.study import Study

STUDY = """
name = "what letters are about"
algorithm = "topics"
vocabulary = "words.txt"

[parameters]
n_components = 2

[unit]
kind = "record"

[privacy]
epsilon = 5.0
delta = 1e-5

[[sites]]
name = "north"
units = 400
data = "north.npz"

[[sites]]
name = "south"
units = 400
data = "south.npz"
"""
WORDS = ("lake", "boat", "engine", "road")


def write(folder: Path, text: str = STUDY) -> Path:
    rng = np.random.default_rng(0)
    topics = np.array([[0.6, 0.4, 0.0, 0.0], [0.0, 0.1, 0.5, 0.4]])
    for name in ("north", "south"):
        save_npz(folder / f"{name}.npz", csr_array(rng.multinomial(6, topics[rng.integers(2, size=400)])))
    (folder / "words.txt").write_text("\n".join(WORDS))
    path = folder / "study.toml"
    path.write_text(text)
    return path


def test_topics_study_of_files_finds_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    study = Study.load(write(tmp_path))
    plan = study.plan()
    assert plan.question.columns == WORDS
    assert set(plan.question.files) == {"vocabulary"}
    found = study.run().estimate
    named = found["topics"].labelled()
    assert sorted(max(topic, key=topic.get) for topic in named.values()) == ["engine", "lake"]


def test_topics_study_of_other_vocabulary_has_other_plan(tmp_path: Path) -> None:
    path = write(tmp_path)
    before = Study.load(path).plan().public_digest
    (tmp_path / "words.txt").write_text("\n".join(reversed(WORDS)))
    assert Study.load(path).plan().public_digest != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n_components = 2", 'n_components = 2\ncolumns = ["a"]'),
        ('kind = "record"', 'kind = "person"\ncolumn = "who"'),
    ],
)
def test_topics_study_with_columns_is_refused(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(BadStudy, match="vocabulary"):
        Study.load(write(tmp_path, STUDY.replace(old, new)))
