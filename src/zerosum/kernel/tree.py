"""The tree of a study: along which sites messages travel. A star is the tree in which no site has a parent.

The coordinator is the root. A site without a parent is at the top: it exchanges messages with the coordinator itself. A
site with children is an inner node: it relays their messages, and adds their masked vectors to its own. The branch of a
site is the site and all sites below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zerosum.errors import BadParameter


def balanced(names: Sequence[str], fan_out: int) -> dict[str, str]:
    """The parents of a balanced tree: the coordinator and every inner node have at most `fan_out` children. Sites are
    placed level by level, in the order of the roster.

    >>> balanced(["a", "b", "c", "d", "e"], 2)
    {'c': 'a', 'd': 'a', 'e': 'b'}
    """
    if fan_out < 2:
        raise BadParameter(f"fan_out must be at least 2, got {fan_out}")
    # Node 0 is the coordinator and node s + 1 is site s; the parent of node n is (n - 1) // fan_out.
    return {name: names[s // fan_out - 1] for s, name in enumerate(names) if s >= fan_out}


class SiteTree:
    """A tree over the sites of a roster.

    Parameters
    ----------
    names:
        The sites in the order of the plan.
    parents:
        For each site that is not at the top the name of its parent.

    Attributes
    ----------
    top : tuple of str
        The sites that exchange messages with the coordinator.
    children : dict of str to tuple of str
        The children of each site.
    branch : dict of str to tuple of str
        Each site and all sites below it, the site first.
    height : dict of str to int
        The number of levels below each site, 0 without children.

    Raises
    ------
    BadParameter
        If a name is not on the roster, or parents form a cycle.
    """

    def __init__(self, names: Sequence[str], parents: Mapping[str, str]) -> None:
        for name in (*parents, *parents.values()):
            if name not in names:
                raise BadParameter(f"the tree names {name!r}, which is no site of the study")
        self.top = tuple(name for name in names if name not in parents)
        self.children = {name: tuple(each for each in names if parents.get(each) == name) for name in names}
        self.branch: dict[str, tuple[str, ...]] = {}
        self.height: dict[str, int] = {}
        # Level by level from the top. Sites on a cycle, and sites below one, are never reached.
        order = list(self.top)
        for name in order:
            order += self.children[name]
        if cut := [name for name in names if name not in order]:
            raise BadParameter(f"the tree has a cycle: no path leads from the coordinator to {cut[0]!r}")
        for name in reversed(order):
            below = self.children[name]
            self.branch[name] = (name, *(each for child in below for each in self.branch[child]))
            self.height[name] = 1 + max(self.height[child] for child in below) if below else 0

    @property
    def levels(self) -> int:
        """Number of levels of sites, 1 for a star."""
        return 1 + max(self.height.values())

    @property
    def worst_loss(self) -> int:
        """How many sites are lost with one site in the worst case: its whole branch."""
        return max(map(len, self.branch.values()))

    def __str__(self) -> str:
        """The tree in one line, with the branches of each site in parentheses.

        >>> print(SiteTree(["a", "b", "c", "d"], {"c": "a", "d": "c"}))
        a (c (d)), b
        """
        shown: dict[str, str] = {}
        for name in self.height:  # from the bottom to the top
            below = ", ".join(shown[child] for child in self.children[name])
            shown[name] = f"{name} ({below})" if below else name
        return ", ".join(shown[name] for name in self.top)
