"""The lint of docsite/plain_english.py: it finds words in prose, leaves code alone, and its list PENDING shrinks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import plain_english
from plain_english import (
    PENDING,
    ROOT,
    every_hit,
    hits_in_text,
    markdown_prose,
    notebook_prose,
    python_prose,
    unreleased,
)


def words_in_python(source: str) -> list[tuple[int, str]]:
    return [(hit.line, hit.word) for hit in hits_in_text(python_prose(source), "module.py")]


def words_in_page(text: str) -> list[tuple[int, str]]:
    return [(hit.line, hit.word) for hit in hits_in_text(markdown_prose(text), "page.md")]


# ---- Python ------------------------------------------------------------------------------------------------------


def test_docstring_comment_and_message_with_a_listed_word_are_found() -> None:
    source = '"""Whoever asks."""\n# nobody reads this\nraise ValueError("the sites are told nothing")\n'
    assert words_in_python(source) == [(1, "Whoever"), (2, "nobody"), (3, "told")]


def test_phrase_over_two_lines_of_one_text_is_found() -> None:
    assert words_in_python('raise ValueError("at most so "\n    "many units")\n') == [(1, "so many")]
    assert words_in_python("# read at most so\n# often by a page\n") == [(1, "so often")]


def test_phrase_over_two_texts_is_not_found() -> None:
    assert words_in_python('pair = ("it is so", "many units here")\n') == []


def test_identifier_and_short_literal_are_not_prose() -> None:
    assert words_in_python('told = {"told": heard, "nobody": 1}\n') == []


def test_inline_code_doctest_and_field_of_an_f_string_are_exempt() -> None:
    assert words_in_python('"""Calls `told`.\n\n>>> told(whoever)\n"""\n') == []
    assert words_in_python('message = f"the value is {told} of {nobody[0]} units"\n') == []
    assert words_in_python('message = f"nobody has the value {told}"\n') == [(1, "nobody")]


def test_place_after_a_letter_of_several_bytes_is_right() -> None:
    assert words_in_python('σ = ("σσσσσσ told σ ε", told)\n') == [(1, "told")]


def test_marker_with_a_reason_exempts_its_line_and_its_string() -> None:
    assert words_in_python('"""Nobody\nis here.\n"""  # plain-english: a quotation\n') == []
    assert words_in_python("# nobody  plain-english: a quotation\n# nobody\n") == [(2, "nobody")]


# ---- Markdown ----------------------------------------------------------------------------------------------------


def test_page_with_a_listed_word_is_found_at_its_line() -> None:
    assert words_in_page("# Title\n\nWeak ones drown\nin\nearnest.\n") == [(3, "drown"), (4, "in earnest")]


@pytest.mark.parametrize(
    "text",
    [
        "Calls `nobody` twice.\n",
        "```text\nnobody\n```\n",
        "Text.\n\n    zerosum run nobody\n\nText.\n",
        "A <!-- nobody --> comment.\n",
        'An <a id="nobody-decides"></a> anchor.\n',
        "A [link](pages/nobody.md).\n",
        "<!-- plain-english: a quotation -->\nNobody is perfect.\n",
        "Nobody is perfect. <!-- plain-english: a quotation -->\n",
    ],
)
def test_code_comment_link_target_and_marked_line_of_a_page_are_exempt(text: str) -> None:
    assert words_in_page(text) == []


def test_text_after_an_exempt_part_is_checked() -> None:
    assert words_in_page("```text\nx\n```\nnobody\n") == [(4, "nobody")]
    assert words_in_page("<!-- plain-english: a quotation -->\nNobody\nnobody\n") == [(3, "nobody")]


def test_notebook_with_a_listed_word_in_a_text_cell_is_found_at_its_cell() -> None:
    cells = [("code", ["nobody"]), ("markdown", ["Plain\n", "text"]), ("markdown", ["in\n", "earnest, `told`"])]
    text = json.dumps({"cells": [{"cell_type": kind, "source": source} for kind, source in cells]})
    assert [(hit.line, hit.word) for hit in hits_in_text(notebook_prose(text), "a.ipynb")] == [(3, "in earnest")]


def test_published_version_of_the_changelog_is_exempt() -> None:
    text = "## [Unreleased]\n\nnobody\n\n## [0.2.0] - 2026-11-17\n\nnobody\n"
    assert [hit.line for hit in hits_in_text(unreleased(text), "CHANGELOG.md")] == [3]


# ---- the tree ----------------------------------------------------------------------------------------------------


def test_hit_has_suggestion_of_its_word() -> None:
    (hit,) = hits_in_text("in earnest", "page.md")
    assert "real study" in hit.suggestion
    assert str(hit).startswith("page.md:1: in earnest: use ")


def test_package_or_page_is_pending_exactly_if_it_has_hits() -> None:
    assert sorted({place for place, _ in every_hit(ROOT)}) == sorted(PENDING)


def test_tree_with_a_hit_outside_the_pending_packages_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "src" / "zerosum" / "kernel" / "plan.py"
    module.parent.mkdir(parents=True)
    module.write_text("# nobody\n")
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)
    monkeypatch.setattr(plain_english, "PENDING", ())
    assert plain_english.main() == 1
    assert "src/zerosum/kernel/plan.py:1: nobody" in capsys.readouterr().out
    monkeypatch.setattr(plain_english, "PENDING", ("src/zerosum/kernel",))
    assert plain_english.main() == 0
    monkeypatch.setattr(plain_english, "PENDING", ("src/zerosum/kernel", "docs/x.md"))
    assert plain_english.main() == 1
    assert "docs/x.md has no hits" in capsys.readouterr().out
