"""The examples and the README's code, run as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zerosum import Policy, Study
from zerosum.report.record import privacy_report
from zerosum.study import SiteFile

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(script: Path, folder: Path) -> str:
    environment = {**os.environ, "ZEROSUM_STATE": str(folder / "state")}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def test_examples_exist() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example_runs_and_leaves_no_files(script: Path, tmp_path: Path) -> None:
    assert run(script, tmp_path).strip()
    assert list(tmp_path.iterdir()) == []


def test_readme_code_runs_and_spends(tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    (code,) = blocks("README.md", "python")
    script.write_text(code)
    assert "epsilon 1 at delta 1e-05" in run(script, tmp_path)
    assert len(list((tmp_path / "state" / "ledgers").glob("*.sqlite"))) == 4


@pytest.mark.parametrize(
    "page", ["docs/describe.md", "docs/ica.md", "docs/mixtures.md", "docs/topics.md", "docs/training.md"]
)
def test_docs_page_code_runs_and_spends_nothing(page: str, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    (code,) = blocks(page, "python")
    script.write_text(code)
    assert run(script, tmp_path).strip()
    assert list(tmp_path.iterdir()) == [script]


@pytest.mark.parametrize("page", ["README.md", "docs/describe.md", "docs/study.md", "docs/training.md"])
def test_docs_page_study_file_can_be_planned(page: str, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(blocks(page, "toml")[0])
    report = privacy_report(Study.load(study).plan())
    # Laplace noise has the epsilon at delta 0, and about 2 delta less at delta.
    assert report.worst_epsilon == pytest.approx(report.epsilon, abs=3 * report.delta)


def test_docs_page_policy_and_site_files_load(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    _study, site, text = blocks("docs/study.md", "toml")[:3]
    policy.write_text(text)
    assert Policy.load(policy).ledger_path.parent.parent == tmp_path
    file = tmp_path / "site.toml"
    file.write_text(site)
    assert SiteFile.load(file).unit_column == "patient"
