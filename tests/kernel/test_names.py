from __future__ import annotations

import pytest

from zerosum.algorithms import MeanProgram
from zerosum.errors import BadParameter
from zerosum.kernel.names import check_name, visible
from zerosum.study import run

UNSEEN = ["ev\x1b[31mil", "a\x1b]0;b\x07", "a\x00b", "a\x9bb", "a\u202eb", "a\nb", "a\u2028b"]


@pytest.mark.parametrize("name", [*UNSEEN, "x" * 201])
def test_check_name_control_characters_are_refused(name: str) -> None:
    with pytest.raises(BadParameter, match="name"):
        check_name("a site", name)
    sites = {site: [[0.0]] * 20 for site in ("x", name)}
    with pytest.raises(BadParameter, match="name"):
        run(MeanProgram(columns=("a",), clip=1.0), sites, epsilon=1.0, delta=1e-5, unit="person")


@pytest.mark.parametrize("name", UNSEEN)
def test_visible_name_of_control_characters_is_valid_name(name: str) -> None:
    check_name("a study", visible(name))


@pytest.mark.parametrize("name", ["Universitätsklinikum 7", "東京", "[red]a", "☃", "a\U0001f9e0b", "x" * 200])
def test_visible_ordinary_name_is_unchanged(name: str) -> None:
    check_name("a site", name)
    assert visible(name) == name
