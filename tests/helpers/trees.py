"""Small studies along a tree of seven sites: s0 with children s2 and s3, s1 with s4 and s5, and s6 below s2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from helpers.small_studies import QUESTION, make, make_sites
from zerosum.engines.base import Engine
from zerosum.engines.in_process import InProcess
from zerosum.engines.tree import Tree
from zerosum.kernel.plan import Plan
from zerosum.kernel.terms import PlannedSite
from zerosum.kernel.tree import balanced
from zerosum.kernel.view import Coalition
from zerosum.protocol.messages import Message
from zerosum.report.record import Result
from zerosum.site.site import Site
from zerosum.study import execute, pin

NAMES = tuple(f"s{i}" for i in range(7))
PARENTS = balanced(NAMES, 2)


def tree_sites(folder: Path, **policy: object) -> list[Site]:
    return make_sites(folder, (12, 20, 40, 30, 25, 18, 22), **policy)


def tree_plan(dropouts: int = 2, colluders: int = 1, **changes: object) -> Plan:
    settings: dict[str, object] = {"parents": PARENTS, **changes}
    sites = tuple(PlannedSite(name) for name in NAMES)
    return make("secure-sum", sites=sites, coalition=Coalition(colluders, dropouts), **settings)


def along_tree(plan: Plan, sites: list[Site], loses: Callable[[str, Message], bool] | None = None) -> Result:
    """Run the small question along the tree of a plan, in this process."""
    pinned = pin(plan, sites)
    engine: Engine = InProcess(sites, loses)
    return execute(pinned, QUESTION, Tree(pinned, engine))
