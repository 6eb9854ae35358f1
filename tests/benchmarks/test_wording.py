"""Docstrings and messages of two versions side by side (`benchmarks/wording.py`)."""

from __future__ import annotations

from pathlib import Path

import wording

BEFORE = '''"""Old | module."""
class Mean:
    """Old class."""
    def fit(self, n):
        """Old method."""
        if n < 1:
            raise ValueError(f"bad {n!r}")
'''
AFTER = '''"""New module."""
class MeanProgram:
    """New class."""
    def fit(self, n):
        """New method."""
        if n < 1:
            raise ValueError(f"n must be positive, got {n}")
'''


def trees(folder: Path, new_file: str) -> tuple[Path, Path]:
    before, after = folder / "before", folder / "after"
    for path, text in ((before / "mean.py", BEFORE), (after / new_file, AFTER)):
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    return before, after


def test_side_by_side_of_same_file_pairs_module_and_renamed_program(tmp_path: Path) -> None:
    printed = wording.side_by_side(*trees(tmp_path, "mean.py"), seed=1)
    assert "| `mean.py` | Old \\| module. | New module. |" in printed
    assert "| `mean.py:MeanProgram.fit` | Old method. | New method. |" in printed
    assert "| `mean.py:MeanProgram.fit` | bad {n!r} | n must be positive, got {n} |" in printed


def test_side_by_side_of_moved_file_pairs_unique_names(tmp_path: Path) -> None:
    printed = wording.side_by_side(*trees(tmp_path, "means/program.py"), seed=1)
    assert "| `means/program.py:MeanProgram` | Old class. | New class. |" in printed
    assert "module" not in printed
