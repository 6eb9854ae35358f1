"""A statistic of your own: the yearly trend of each person's glucose, averaged over three clinics.

The unit is a person with several visits. The function receives the rows of one person at a time, and the kernel clips
its result, so that no person can move the sum by more than twice the clip. A coordinator can only name the statistic.
Each site registers the code itself and allows it in its own policy.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

import zerosum

Floats = NDArray[np.float64]
COLUMNS = ("years", "glucose")
CLIP = 20.0  # mg/dL a year: public, chosen before any record is seen


@zerosum.statistic("yearly_trend", length=1)
def yearly_trend(visits: Floats) -> list[float]:
    """The slope of glucose over time, by least squares; a person with a single visit has none and counts as zero."""
    years, glucose = visits.T
    return [float(np.polyfit(years, glucose, 1)[0])] if len(visits) > 1 else [0.0]


def clinic(people: int, trend: float, seed: int) -> zerosum.Units:
    """Made-up visits: three to eight a person, within five years."""
    rng = np.random.default_rng(seed)
    persons = []
    for _ in range(people):
        years = np.sort(rng.uniform(0, 5, rng.integers(3, 9)))
        own_trend = rng.normal(trend, 2.0)
        glucose = rng.normal(105, 15) + own_trend * years + rng.normal(0, 4, len(years))
        persons.append(np.column_stack([years, glucose]))
    return zerosum.Units.from_list(persons)


def main() -> None:
    clinics = {"Hill": clinic(250, 1.0, 1), "Bridge": clinic(400, 1.5, 2), "Harbour": clinic(700, 2.0, 3)}
    question = zerosum.algorithms.CustomProgram(columns=COLUMNS, statistic="yearly_trend", clip=CLIP)

    with TemporaryDirectory() as folder:

        def policy(name: str, statistics: tuple[str, ...] | None) -> zerosum.Policy:
            ledger = Path(folder, f"{name}.sqlite")
            return zerosum.Policy(population=name, statistics=statistics, data="synthetic", ledger=ledger)

        policies = {name: policy(name, ("yearly_trend",)) for name in clinics}
        result = zerosum.run(question, clinics, epsilon=2.0, delta=1e-5, policies=policies)

        # a policy allows the built-in statistics unless it names others: the last clinic has not named ours
        try:
            unwilling = {**policies, "Harbour": policy("Harbour", None)}
            zerosum.run(question, clinics, epsilon=2.0, delta=1e-5, policies=unwilling)
        except zerosum.ZerosumError as error:
            refusal = str(error)

    for name, units in clinics.items():
        print(f"{name}: {len(units)} people, {len(units.rows)} visits, at most {units.largest} a person")
    people = sum(len(units) for units in clinics.values())
    exact = yearly_trend(columns=len(COLUMNS), clip=CLIP)  # what was registered is a class: its `total` has no noise
    truth = sum(float(exact.total(units)[0]) for units in clinics.values()) / people
    mean, noise = result.estimate["mean"][0], result.estimate["noise_std"][0] / people
    print(f"\nmean trend: {mean:.2f} mg/dL a year, +/- {noise:.2f} for privacy; without noise {truth:.2f}")
    print(*result.report.sentences(), sep="\n")
    print(f"\nWithout the policy's word: {refusal}")


if __name__ == "__main__":
    main()
