"""Documents from files: three formats give the same counts, persons are folders, and what is wrong is said once."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from zerosum.data.documents import load_documents, load_vocabulary
from zerosum.errors import BadData

WORDS = ("lake", "boat", "engine")
COUNTS = [[2, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 1]]
TEXTS = ["The Lake, a boat; lake.", "engine", "none of these", "Engine lake's lake"]


def write_uci(path: Path, lines: list[str]) -> Path:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def uci() -> list[str]:
    entries = [f"{i + 1} {j + 1} {c}" for i, row in enumerate(COUNTS) for j, c in enumerate(row) if c]
    return ["4", "3", str(len(entries)), *entries]


def test_formats_say_the_same(tmp_path: Path) -> None:
    save_npz(tmp_path / "a.npz", csr_array(np.array(COUNTS)))
    write_uci(tmp_path / "a.txt", uci())
    write_uci(tmp_path / "a.txt.gz", uci())
    (tmp_path / "a.text").write_text("\n".join(TEXTS))
    (tmp_path / "folder").mkdir()
    for at, text in enumerate(TEXTS):
        (tmp_path / "folder" / f"{at}.txt").write_text(text)
    for name in ("a.npz", "a.txt", "a.txt.gz", "a.text", "folder"):
        units = load_documents(tmp_path / name, WORDS)
        assert units.is_sparse
        assert units.offsets is None
        assert units.rows.toarray().tolist() == COUNTS


def test_a_folder_of_folders_holds_people(tmp_path: Path) -> None:
    for person, texts in {"ann": TEXTS[:3], "bob": TEXTS[3:], "nobody": []}.items():
        (tmp_path / person).mkdir()
        for at, text in enumerate(texts):
            (tmp_path / person / f"{at}.txt").write_text(text)
    units = load_documents(tmp_path, WORDS)
    assert [rows.tolist() for rows in units.each()] == [COUNTS[:3], COUNTS[3:]]


def test_a_vocabulary_has_every_word_once(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("lake\nboat\n\nengine\n")
    assert load_vocabulary(path) == WORDS
    for text, match in (("", "no words"), ("lake\nlake\n", "a word twice")):
        path.write_text(text)
        with pytest.raises(BadData, match=match):
            load_vocabulary(path)
    with pytest.raises(BadData, match="there is no vocabulary"):
        load_vocabulary(tmp_path / "other")


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        (["4", "3"], "cut short"),
        (["4", "2", "1", "1 1 1"], "the 3 words"),
        (["4", "3", "2", "1 1 1"], "number of entries"),
        (["4", "3", "1", "5 1 1"], "does not have"),
        (["4", "3", "1", "1 0 1"], "does not have"),
        (["4", "3", "1", "1 1 -1"], "negative"),
        (["4", "3", "1", "1 1 secret"], "cut short"),
    ],
)
def test_a_damaged_bag_of_words_is_refused(tmp_path: Path, lines: list[str], match: str) -> None:
    path = write_uci(tmp_path / "a.txt", lines)
    with pytest.raises(BadData, match=match) as caught:
        load_documents(path, WORDS)
    assert "secret" not in str(caught.value)


def test_what_is_no_corpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.csv").write_text("1,2")
    np.savez(tmp_path / "plain.npz", data=np.eye(3))
    save_npz(tmp_path / "wide.npz", csr_array(np.eye(4)))
    for name, match in (
        ("gone.npz", "there is no file"),
        ("empty", "no .txt files"),
        ("a.csv", "none of"),
        ("plain.npz", "cut short"),
        ("wide.npz", "3 words"),
    ):
        with pytest.raises(BadData, match=match):
            load_documents(tmp_path / name, WORDS)
