"""Files that readers expect at the root of a repository: they name real paths, the right version and the CI script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # PyYAML ships no types

import zerosum
from zerosum import estimators
from zerosum.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[1]
_PATH = re.compile(
    r"(?<![\w/.-])((?:src|tests|docs|benchmarks|examples|requirements|\.ci)/[\w./-]*\w/?|\w+\.(?:md|yml))"
)


def named_paths(page: str) -> set[str]:
    """Every path of the repository that stands in a page's text."""
    return set(_PATH.findall((ROOT / page).read_text(encoding="utf-8")))


def test_citation_version_is_the_version_of_the_source() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] in (zerosum.__version__, zerosum.__version__.partition(".dev")[0])


def test_citation_has_the_required_fields_and_five_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["authors"] == [{"name": "Zerosum maintainers"}]
    assert len(citation["references"]) == 5
    page = " ".join((ROOT / "docs" / "papers.md").read_text(encoding="utf-8").split())
    for paper in citation["references"]:
        assert {"type", "title", "authors", "year"} <= set(paper)
        assert paper["title"] in page
        assert all(set(author) == {"given-names", "family-names"} for author in paper["authors"])


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_path_named_in_a_page_exists(page: str) -> None:
    paths = named_paths(page)
    assert len(paths) >= 3
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_make_target_named_in_contributing_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:`|^    )make ([a-z-]+)", text, re.MULTILINE))
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets
    assert targets <= set(known)


def test_workflow_calls_the_ci_script_and_nothing_else() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert [step["with"]["python-version"] for step in job["steps"] if "python" in step.get("uses", "")] == ["3.11"]


def test_repository_files_are_in_the_source_distribution() -> None:
    (line,) = re.findall(r"^include (.*)$", (ROOT / "MANIFEST.in").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"CITATION.cff", "CONTRIBUTING.md", "SECURITY.md"} <= set(line.split())


def test_readme_lists_every_algorithm_and_every_estimator() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    assert [name for name in estimators.__all__ if not any(f"`{name}`" in row[2] for row in rows)] == []
    assert [name for name in ALGORITHMS if not any(f"`{name}`" in row[3] for row in rows)] == []


def test_readme_link_leads_to_a_file_and_a_heading() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = link.partition("#")
        assert (ROOT / path).exists(), link
        headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert anchor in ["", *(heading.lower().replace(" ", "-") for heading in headings)], link
