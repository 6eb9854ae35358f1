"""Documents from files: three formats give the same counts, persons are folders, and what is wrong is said once."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, save_npz

from zerosum.data.documents import load_documents, load_vocabulary, word_counts, words_of
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


def test_load_documents_every_format_gives_same_counts(tmp_path: Path) -> None:
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


def test_load_documents_folder_of_folders_has_people_as_units(tmp_path: Path) -> None:
    for person, texts in {"ann": TEXTS[:3], "bob": TEXTS[3:], "nobody": []}.items():
        (tmp_path / person).mkdir()
        for at, text in enumerate(texts):
            (tmp_path / person / f"{at}.txt").write_text(text)
    units = load_documents(tmp_path, WORDS)
    nobody = [[0.0] * len(WORDS)]  # stays in the public number of people
    assert [rows.tolist() for rows in units.each()] == [COUNTS[:3], COUNTS[3:], nobody]


def test_load_vocabulary_repeated_or_no_words_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "words"
    path.write_text("lake\nboat\n\nengine\n")
    assert load_vocabulary(path) == WORDS
    for text in ("", "lake\nlake\n"):
        path.write_text(text)
        with pytest.raises(BadData):
            load_vocabulary(path)
    with pytest.raises(BadData, match="other"):
        load_vocabulary(tmp_path / "other")


@pytest.mark.parametrize(
    "lines",
    [
        ["4", "3"],
        ["4", "2", "1", "1 1 1"],
        ["4", "3", "2", "1 1 1"],
        ["4", "3", "1", "5 1 1"],
        ["4", "3", "1", "1 0 1"],
        ["4", "3", "1", "1 1 -1"],
        ["4", "3", "1", "1 1 secret"],
    ],
)
def test_load_documents_damaged_bag_of_words_is_refused(tmp_path: Path, lines: list[str]) -> None:
    assert len(load_documents(write_uci(tmp_path / "whole.txt", ["4", "3", "1", "1 1 1"]), WORDS)) == 4
    path = write_uci(tmp_path / "a.txt", lines)
    with pytest.raises(BadData, match=r"a\.txt") as caught:
        load_documents(path, WORDS)
    assert "secret" not in str(caught.value)


def test_load_documents_bad_corpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.csv").write_text("1,2")
    np.savez(tmp_path / "plain.npz", data=np.eye(3))
    save_npz(tmp_path / "wide.npz", csr_array(np.eye(4)))
    for name in ("gone.npz", "empty", "a.csv", "plain.npz", "wide.npz"):
        with pytest.raises(BadData) as refused:
            load_documents(tmp_path / name, WORDS)
        assert str(tmp_path / name) in str(refused.value)


def test_words_of_text_is_independent_of_case_and_encoding() -> None:
    assert words_of("Lake\u2019s 'lake' LAKE- _lake_ x2 2x well-known") == [
        *("lake's", "lake", "lake", "lake", "x2", "x", "well-known"),
    ]
    assert words_of("Cafe\u0301") == words_of("caf\u00e9") == ["caf\u00e9"]
    assert word_counts(["Cafe\u0301 caf\u00e9"], ["cafe\u0301"]).toarray().tolist() == [[2.0]]


@pytest.mark.parametrize("word", ["2004", "3d", "new york", "lake-", "'tis", "_", "c++", "\u0130zmir", "-"])
def test_load_documents_word_that_text_cannot_contain_is_refused(tmp_path: Path, word: str) -> None:
    (tmp_path / "a.text").write_text("a lake\n")
    with pytest.raises(BadData, match=re.escape(repr(word))):
        load_documents(tmp_path / "a.text", ["lake", word])
    save_npz(tmp_path / "a.npz", csr_array(np.array([[1, 2]])))
    assert load_documents(tmp_path / "a.npz", ["lake", word]).columns == 2  # a matrix counts what it likes


def test_load_documents_words_that_differ_by_case_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.text").write_text("a lake\n")
    with pytest.raises(BadData, match=r"'Lake'.*'lake'"):
        load_documents(tmp_path / "a.text", ["boat", "Lake", "lake"])


def test_load_vocabulary_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("lake\nboat\n", encoding="utf-8-sig")
    assert load_vocabulary(tmp_path / "words") == ("lake", "boat")


def test_load_documents_other_file_is_refused(tmp_path: Path) -> None:
    flat, people = tmp_path / "flat", tmp_path / "people"
    for folder in (flat, people / "ann"):
        folder.mkdir(parents=True)
        (folder / "1.TXT").write_text(TEXTS[0])
        (folder / ".hidden").write_text("not a document")
    assert [len(load_documents(folder, WORDS)) for folder in (flat, people)] == [1, 1]
    (flat / "ann.doc").write_text("lake")
    (people / "ann" / "older").mkdir()
    for folder, detail in ((flat, "ann.doc"), (people, "older")):
        with pytest.raises(BadData, match=r"\.txt") as caught:
            load_documents(folder, WORDS)
        assert detail in str(caught.value.detail)
        assert detail not in str(caught.value)
    (people / "stray.txt").write_text("lake")
    with pytest.raises(BadData):
        load_documents(people, WORDS)


def test_load_documents_short_integer_counts_do_not_wrap(tmp_path: Path) -> None:
    twice = coo_array((np.array([100, 100], dtype=np.int8), ([0, 0], [1, 1])), shape=(1, 3))
    save_npz(tmp_path / "a.npz", twice)
    assert load_documents(tmp_path / "a.npz", WORDS).rows.toarray().tolist() == [[0, 200, 0]]
    save_npz(tmp_path / "b.npz", csr_array(np.array([[1j, 0, 0]])))
    with pytest.raises(BadData):
        load_documents(tmp_path / "b.npz", WORDS)


def test_documents_line_with_a_form_feed_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "notes.text").write_text("a\x0ca\x0ba\u2028a\nb\n")
    assert len(load_documents(tmp_path / "notes.text", ("a", "b"))) == 2
