"""What to expect of a study before it spends anything: correlations with the result without noise, from public facts.

`outlook_of` evaluates an algorithm's own expectation (`zerosum.algorithms.expectation`) at the terms of a study, and
finds the number of people, or the epsilon, that would reach a good correlation. It reads no data and charges nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from zerosum.algorithms import Algorithm
from zerosum.algorithms.expectation import GOOD, LEAST, Expectation
from zerosum.algorithms.program import PublicFacts
from zerosum.errors import BadParameter, Refused
from zerosum.kernel.terms import Terms
from zerosum.study.planning import facts_of

# Largest epsilon, and largest number of people over those of the study, that are looked for.
_LARGEST_EPSILON, _MOST_TIMES = 100.0, 1000.0
_STEPS = 8  # halvings, on a logarithmic scale: a factor of 1000 to within 3 %


@dataclass(frozen=True)
class Outlook:
    """Expected correlations of a study.

    Parameters
    ----------
    expected : Expectation
        Range of the correlations.
    people : int
        Number of people of the study.
    epsilon : float
        Its epsilon.
    people_needed, epsilon_needed : float, optional
        What would bring the upper end to `GOOD`, with all else as it is; None if nothing within a factor of 1000, or an
        epsilon of 100, would.
    """

    expected: Expectation
    people: int
    epsilon: float
    people_needed: int | None
    epsilon_needed: float | None

    @property
    def sentences(self) -> tuple[str, ...]:
        """The outlook in words."""
        each = self.expected
        said = [f"maps are expected to correlate at {_range(each.low, each.high)} with those without noise, {each.why}"]
        if each.difference is not None:
            said.append(
                f"the difference from the templates, by which the result is judged, at {_range(*each.difference)}"
            )
        if each.judged[1] < GOOD:
            ways = []
            if self.people_needed is not None:
                ways.append(f"about {self.people_needed} people at epsilon {self.epsilon:g}")
            if self.epsilon_needed is not None:
                ways.append(f"epsilon {self.epsilon_needed:.2g} with {self.people} people")
            said.append(f"at best, {GOOD:g} takes {', or '.join(ways) or 'more than a thousand times the people'}")
        return tuple(said)

    def as_record(self) -> dict[str, Any]:
        """The outlook as JSON values."""
        return {
            "low": self.expected.low,
            "high": self.expected.high,
            "difference": self.expected.difference,
            "why": self.expected.why,
            "enough": self.expected.enough,
            "people_needed": self.people_needed,
            "epsilon_needed": self.epsilon_needed,
        }

    def check(self) -> None:
        """Refuse a study of which too little is expected.

        Raises
        ------
        Refused
            The upper end of the expected correlation is below `LEAST`.
        """
        if not self.expected.enough:
            what = "the maps" if self.expected.difference is None else "the difference from the templates"
            raise Refused(
                f"{what} would correlate at {self.expected.judged[1]:.2f} at best with the result without noise, and "
                f"below {LEAST:g} a study spends its budget on noise: {self.sentences[-1]}. Give --anyway to go "
                "on all the same"
            )


def outlook_of(algorithm: Algorithm, terms: Terms) -> Outlook | None:
    """What to expect of an algorithm under some terms; None if the algorithm or the number of people does not tell.

    Parameters
    ----------
    algorithm : Algorithm
        The program; open parameters may be open.
    terms : Terms
        Sites, budget, scheme and coalition.
    """
    facts = facts_of(terms)
    expected = algorithm.expectation(facts)
    if expected is None or facts.units is None or not facts.noise > 0:
        return None

    def reached(noise: float) -> float:
        found = algorithm.expectation(PublicFacts(noise, facts.units, facts.published))
        return 0.0 if found is None else found.judged[1]

    people = epsilon = None
    if expected.judged[1] < GOOD and (times := _least_factor(lambda t: reached(facts.noise / t) >= GOOD)) is not None:
        people, epsilon = math.ceil(times * facts.units), _epsilon_for(terms, facts.noise / times)
    return Outlook(expected, facts.units, terms.epsilon, people, epsilon)


def _least_factor(enough: Callable[[float], bool]) -> float | None:
    """The least factor from 1 to 1000 that is enough, to within 3 %."""
    if not enough(_MOST_TIMES):
        return None
    low, high = 1.0, _MOST_TIMES
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _epsilon_for(terms: Terms, noise: float) -> float | None:
    """The epsilon at which a sum has this noise, up to 100."""

    def small(epsilon: float) -> bool:
        try:
            return replace(terms, epsilon=epsilon).noise_of_everything <= noise
        except BadParameter:  # an epsilon that finite arithmetic refuses
            return False

    if not small(_LARGEST_EPSILON):
        return None
    low, high = terms.epsilon, _LARGEST_EPSILON
    for _ in range(2 * _STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if small(middle) else (middle, high)
    return high


def _range(low: float, high: float) -> str:
    """Two correlations in words, or one if they are equal.

    >>> _range(0.2, 0.31), _range(0.5, 0.501)
    ('0.20 to 0.31', '0.50')
    """
    return f"{high:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"
