"""Every seeded fault fits the source, and the test that `guards.py` names for it catches it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mutations import FAULTS, seeded
from mutations.fault import Edit, Fault
from mutations.guards import GUARDS
from zerosum.errors import BadParameter

TESTS = Path(__file__).parents[1]


def test_faults_all_have_a_guard_and_fit_the_source() -> None:
    assert set(GUARDS) == set(FAULTS)
    for name in FAULTS:
        with seeded(name):
            pass


@pytest.mark.parametrize("guard", sorted(set(GUARDS.values())))
def test_guard_is_a_test_of_the_module_that_it_names(guard: str) -> None:
    path, _, name = guard.partition("::")
    text = (TESTS / path).read_text(encoding="utf-8")
    assert re.search(rf"^def {name.partition('[')[0]}\(", text, re.MULTILINE)


def test_fault_after_its_block_is_gone() -> None:
    from zerosum.kernel.accountant import compose

    with seeded("composition"):
        assert compose([3.0, 4.0]) == 4.0
    assert compose([3.0, 4.0]) == 5.0


def test_fault_that_is_unknown_or_quotes_other_source_is_refused() -> None:
    with pytest.raises(BadParameter, match="unknown"):
        seeded("none")
    edit = Edit("kernel.accountant:compose", "words that are not there", "")
    with pytest.raises(BadParameter, match="0 times"), Fault("stale", "", (edit,)).seeded():
        pass


def test_table_of_the_docs_has_a_row_for_every_fault() -> None:
    lines = [f"| `{f.name}` | {f.wrong} | `{f.where}` | `{GUARDS[f.name]}` |" for f in FAULTS.values()]
    text = (TESTS.parent / "docs" / "audit.md").read_text(encoding="utf-8")
    rows = [
        line for line in text.splitlines() if re.match(r"\| `[a-z-]+` \| .* \| `[\w./]+::", line) or "::test_" in line
    ]
    assert rows == lines


@pytest.mark.slow
def test_mutations_every_fault_is_caught(capfd: pytest.CaptureFixture[str]) -> None:
    """The whole table; prints each fault with its verdict, seconds and guard."""
    with capfd.disabled():
        done = subprocess.run([sys.executable, "-m", "mutations"], cwd=TESTS, check=False)
    assert done.returncode == 0
