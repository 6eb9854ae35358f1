"""The counts of `benchmarks/explanation.py` on a file whose lines are known."""

from __future__ import annotations

from pathlib import Path

from explanation import measure_file, measure_folder, total

SOURCE = '''"""Module.

Second paragraph.
"""

# own line
import os  # trailing

TEXT = """not a
docstring"""


def public(a: int) -> int:
    """Sum.

    Parameters
    ----------
    a : int
    """
    return a


class Thing:
    """Thing.

    Parameters
    ----------
    b : int
    """

    def __init__(self, b: int) -> None:
        self.b = b

    def _private(self) -> None: ...
'''


def test_measure_of_a_known_file_counts_each_kind_of_line() -> None:
    found = measure_file(SOURCE)
    assert (found.code, found.docstring, found.comments, found.trailing) == (9, 16, 1, 1)
    assert (found.public, found.with_docstring, found.with_parameters) == (2, 2, 2)


def test_measure_of_a_folder_leaves_tests_out_and_adds_up(tmp_path: Path) -> None:
    for name in ("a/one.py", "a/deep/two.py", "top.py", "a/test_no.py", "tests/no.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SOURCE)
    packages = measure_folder(tmp_path)
    assert {name: measure.files for name, measure in packages.items()} == {"a": 2, "(top)": 1}
    assert total(packages).code == 27
