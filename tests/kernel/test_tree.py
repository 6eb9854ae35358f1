"""The tree of a study: its shape, its faults, and what a plan does with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.small_studies import make
from helpers.trees import NAMES, PARENTS, tree_plan
from zerosum.errors import BadParameter
from zerosum.kernel.plan import Plan
from zerosum.kernel.terms import PlannedRelease, PlannedSite
from zerosum.kernel.tree import SiteTree, balanced


def test_tree_balanced_has_at_most_fan_out_children_everywhere() -> None:
    for sites in (2, 5, 30, 100):
        names = [f"s{i}" for i in range(sites)]
        for fan_out in (2, 4, 10):
            tree = SiteTree(names, balanced(names, fan_out))
            assert len(tree.top) == min(fan_out, sites)
            assert all(len(below) <= fan_out for below in tree.children.values())
            assert sorted(name for top in tree.top for name in tree.branch[top]) == sorted(names)


def test_tree_branches_heights_and_text_follow_parents() -> None:
    tree = SiteTree(NAMES, PARENTS)
    assert tree.top == ("s0", "s1")
    assert tree.branch["s0"] == ("s0", "s2", "s6", "s3")
    assert [tree.height[name] for name in NAMES] == [2, 1, 1, 0, 0, 0, 0]
    assert (tree.levels, tree.worst_loss) == (3, 4)
    assert str(tree) == "s0 (s2 (s6), s3), s1 (s4, s5)"


def test_tree_without_parents_is_star() -> None:
    tree = SiteTree(NAMES, {})
    assert tree.top == NAMES
    assert (tree.levels, tree.worst_loss) == (1, 1)


@pytest.mark.parametrize(
    ("parents", "word"),
    [
        ({"s1": "s1"}, "cycle"),
        ({"s1": "s2", "s2": "s3", "s3": "s1"}, "cycle"),
        (dict.fromkeys(NAMES, "s0"), "cycle"),
        ({"s1": "elsewhere"}, "'elsewhere'"),
        ({"elsewhere": "s1"}, "'elsewhere'"),
    ],
)
def test_tree_with_cycle_or_unknown_name_is_refused(parents: dict[str, str], word: str) -> None:
    with pytest.raises(BadParameter, match=word):
        tree_plan(parents=parents)


@pytest.mark.parametrize("fan_out", [1, 0, -3])
def test_tree_of_small_fan_out_is_refused(fan_out: int) -> None:
    with pytest.raises(BadParameter, match="fan_out"):
        balanced(NAMES, fan_out)


@pytest.mark.parametrize("scheme", ["local", "pooled", "zero-sum", "pairwise", "cape-published", "cape-helper"])
def test_tree_of_scheme_without_masked_contributions_is_refused(scheme: str) -> None:
    with pytest.raises(BadParameter, match="secure-sum"):
        make(scheme, parents={"s1": "s0"})


def test_tree_without_colluders_is_refused() -> None:
    """An inner node has the view of a star's coordinator at most, and knows its own noise: it counts as a colluder."""
    tree_plan(colluders=0, parents={}, results_to_sites=False)
    with pytest.raises(BadParameter, match="colluder"):
        tree_plan(colluders=0, results_to_sites=False)


def test_tree_with_publication_is_refused() -> None:
    plan = make("secure-sum", sites=tuple(PlannedSite(f"s{i}", 12) for i in range(4)))
    rows = PlannedRelease("clipped_records", 2.0, 1.0, 3, 1.0, kind="publication")
    published = replace(plan, releases=(rows,))
    with pytest.raises(BadParameter, match="publication"):
        replace(published, parents={"s1": "s0"})


def test_plan_without_tree_has_no_entry_in_json() -> None:
    star, tree = tree_plan(parents={}), tree_plan()
    assert b"parents" not in star.to_json()
    assert b"parents" in tree.to_json()
    assert star.digest() != tree.digest()
    assert star.public_digest != tree.public_digest
    assert Plan.from_json(tree.to_json()).tree.branch == tree.tree.branch


def test_plan_with_tree_costs_what_star_costs() -> None:
    star, tree = tree_plan(parents={}), tree_plan()
    assert star.site_mus().tolist() == tree.site_mus().tolist()
    assert star.law(0).own.tolist() == tree.law(0).own.tolist()


def test_plan_leaves_out_leaves_and_no_inner_node_alone() -> None:
    plan = tree_plan(absences=3)
    assert plan.without(["s6"]).parents == {name: parent for name, parent in PARENTS.items() if name != "s6"}
    with pytest.raises(BadParameter, match="'s6'"):
        plan.without(["s2"])
    assert "s2" not in plan.without(["s2", "s6"]).parents
