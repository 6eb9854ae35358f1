"""Documents of one site: files to `Units` of sparse word counts, with a public vocabulary.

Three formats:

- A sparse matrix as `scipy.sparse.save_npz` writes it, documents x words in the order of the vocabulary.
- The bag-of-words format of UCI (`.txt`, `.txt.gz`): the numbers of documents, words and entries, then lines of
  document, word and count, with 1-based indices.
- Text: a file with one document per line (`.text`), or a folder of `.txt` files, one document each. In a folder of
  folders each folder is one person. Other files are refused, except names that begin with a dot.

A word of a text begins with a letter, ends with a letter or digit, and may contain apostrophes, hyphens and
underscores. Case is ignored.

Messages contain no document and no count. The document concerned is in the error's `detail`.
"""

from __future__ import annotations

import gzip
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, load_npz

from zerosum.compute.units import Units, doubled
from zerosum.data.formats import readable
from zerosum.errors import BadData

# A letter, optionally followed by word characters, apostrophes and hyphens that end in a letter or digit.
_WORD = re.compile(r"[^\W\d_](?:[\w'-]*[^\W_])?")


def load_vocabulary(path: Path) -> tuple[str, ...]:
    """Words of a public file, one per line. Raises `BadData` for duplicate words."""
    if not path.is_file():
        raise BadData(f"there is no vocabulary {path}")
    with readable(path):
        # Split at line feeds only, as in `_lines`.
        words = tuple(line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip())
    if not words:
        raise BadData(f"the vocabulary {path} has no words")
    if len(set(words)) < len(words):
        raise BadData(f"the vocabulary {path} has a word twice")
    return words


def load_documents(path: Path, vocabulary: Sequence[str]) -> Units:
    r"""Documents of one site as word counts.

    Parameters
    ----------
    path : Path
        File or folder in one of the formats of this module.
    vocabulary : sequence of str
        Words that are counted, in the order of the columns.

    Raises
    ------
    BadData
        If the documents cannot be read or a count is negative.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "letters.text")
    ...     _ = path.write_text("The boat, the lake\nA lake!\n")
    ...     load_documents(path, ["lake", "boat"]).rows.toarray().tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """
    if path.is_dir():
        units = _folder(path, vocabulary)
    elif not path.is_file():
        raise BadData(f"there is no file {path}")
    else:
        with readable(path):
            match [suffix.lower() for suffix in path.suffixes]:
                case [*_, ".npz"]:
                    units = Units.from_rows(_matrix(path, len(vocabulary)))
                case [*_, ".txt"] | [*_, ".txt", ".gz"]:
                    units = Units.from_rows(_bag_of_words(path, len(vocabulary)))
                case [*_, ".text"]:
                    units = Units.from_rows(word_counts(_lines(path), vocabulary))
                case _:
                    raise BadData(f"{path} is none of .npz, .txt, .txt.gz and .text, and no folder")
    # Finite values are checked here, since a sparse file may contain any number.
    try:
        units.check()
    except BadData as error:
        raise error.about(str(path)) from None
    if np.any(units.rows.data < 0):
        raise BadData(f"{path} has a negative count")
    return units


def document_facts(path: Path) -> tuple[Units, int | None]:
    """Documents of a site without a vocabulary: the units, and the number of words for formats with counts (None for
    texts). The columns of these units have no meaning."""
    words = None
    with readable(path):
        if path.suffix.lower() == ".npz":
            words = int(load_npz(path).shape[1])
        elif path.is_file() and path.suffix.lower() != ".text":
            opened = gzip.open if path.suffix.lower() == ".gz" else open
            with opened(path, "rt", encoding="utf-8") as file:
                _documents, words = int(next(file)), int(next(file))
    return load_documents(path, ["word"] if words is None else [f"w{at}" for at in range(words)]), words


def words_of(text: str) -> list[str]:
    """Words of a text in order, in lower case and composed characters (NFC).

    >>> words_of("At the lake's edge: 'Boats', 3 of 2b!")
    ['at', 'the', "lake's", 'edge', 'boats', 'of', 'b']
    """
    return _WORD.findall(_plain(text))


def _plain(text: str) -> str:
    """Lower case, composed characters, and straight apostrophes."""
    return unicodedata.normalize("NFC", text.lower()).replace("\u2019", "'")


def word_counts(texts: Iterable[str], vocabulary: Sequence[str]) -> csr_array:
    """Counts of each word of the vocabulary in each text, shape (n_texts, n_words), ignoring case.

    Raises `BadData` for a vocabulary with a word that no text can contain, or with two words that are equal in text.

    Parameters
    ----------
    texts : iterable of str
        Documents; each is read once.
    vocabulary : sequence of str
        Words, in the order of the columns.
    """
    # Word in normalised form to its column.
    place: dict[str, int] = {}
    for at, word in enumerate(vocabulary):
        if words_of(word) != [plain := _plain(word)]:
            raise BadData(
                f"no text has the word {word!r} of the vocabulary: a word begins with a letter, ends with a letter or "
                "digit, and has only these, apostrophes, hyphens and underscores within"
            )
        if place.setdefault(plain, at) != at:
            raise BadData(
                f"in text, {vocabulary[place[plain]]!r} and {word!r} of the vocabulary are the same: keep one"
            )
    from sklearn.feature_extraction.text import CountVectorizer

    # scikit-learn's own tokenisation (`token_pattern`, `strip_accents`) has no NFC form and no typographic apostrophe.
    counts = CountVectorizer(analyzer=words_of, vocabulary=place).transform(texts)
    parts = (counts.data.astype(np.float64), counts.indices.astype(np.int64), counts.indptr.astype(np.int64))
    return csr_array(parts, shape=counts.shape)


def _matrix(path: Path, words: int) -> csr_array:
    """Read a sparse matrix, with float64 values."""
    matrix = load_npz(path)
    if matrix.shape[1:] != (words,):
        raise BadData(f"{path} does not have a column for each of the {words} words of the vocabulary")
    try:
        return doubled(matrix)
    except BadData as error:
        raise error.about(str(path)) from None


def _bag_of_words(path: Path, words: int) -> csr_array:
    """Read the UCI format."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        documents, width, entries = (int(next(file)) for _ in range(3))
        table = np.loadtxt(file, dtype=np.int64, ndmin=2) if entries else np.zeros((0, 3), dtype=np.int64)
    if width != words:
        raise BadData(f"{path} does not have the {words} words of the vocabulary")
    if table.shape != (entries, 3) or documents < 1:
        raise BadData(f"{path} does not have the number of entries that it says")
    document, word, count = table.T
    # Indices are 1-based in this format.
    inside = (document >= 1) & (document <= documents) & (word >= 1) & (word <= words)
    if not np.all(inside):
        raise BadData(f"{path} has an entry of a document or a word that it does not have")
    return csr_array((count.astype(np.float64), (document - 1, word - 1)), shape=(documents, words))


def _folder(path: Path, vocabulary: Sequence[str]) -> Units:
    """Read a folder of documents, or a folder of persons' folders."""
    held = _listed(path)
    people = [each for each in held if each.is_dir()]
    if people and len(people) < len(held):
        raise BadData(f"{path} holds people's folders and files beside them: whose those are, nothing says")
    files = [_listed(each) for each in people] if people else [held]
    for file in (file for each in files for file in each):
        if file.suffix.lower() != ".txt" or not file.is_file():
            raise BadData(f"{path} holds something that is no .txt file", detail=str(file))
    if not any(files):
        raise BadData(f"{path} holds no .txt files")

    def read(file: Path) -> str:
        with readable(file, called=f"a document of {path}"):
            return file.read_text(encoding="utf-8")

    # A person without documents stays in the public number of people, with one empty document.
    texts = (text for each in files for text in ([read(file) for file in each] or [""]))
    rows = word_counts(texts, vocabulary)
    if not people:
        return Units(rows)
    ends: NDArray[np.int64] = np.concatenate([[0], np.cumsum([max(len(each), 1) for each in files])]).astype(np.int64)
    return Units(rows, ends)


def _listed(folder: Path) -> list[Path]:
    """Entries of a folder in order, without hidden ones."""
    with readable(folder, called="a folder of documents"):
        return sorted(each for each in folder.iterdir() if not each.name.startswith("."))


def _lines(path: Path) -> list[str]:
    """Lines of a file, split at line feeds only: a form feed does not begin a new document."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return lines[:-1] if lines and not lines[-1] else lines
