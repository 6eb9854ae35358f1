"""Constants of connectivity. Measurements are those of ABIDE (858 people, 20 sites; `benchmarks/connectivity.py`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Constants of connectivity."""

    # Standard deviation between people of the Fisher z of an edge, beside the error of a recording: a round public
    # guess, made before these data were used. ABIDE has 0.18 with that error between 10 components, 0.23 between
    # regions, so that the clip of the rule is above most people.
    between: float = 0.2
    # Assumed mean Fisher z of an edge between regions where no public centre is given: 0.31 and 0.34 for 10 and 20
    # regions of ABIDE, 0.1 to 0.14 for partial correlations; independent components have 0.01.
    region_mean: float = 0.3
    partial_mean: float = 0.14
    # Assumed length of a recording in seconds and width of its band in hertz, where the study states neither.
    seconds: float = 360.0
    band: float = 0.09
    # Mean squared correlation between two edges over people of one site, for the level of the global test: 0.006 for
    # components and 0.002 to 0.006 for partial correlations, 0.09 to 0.1 for regions of ABIDE; rounded up.
    alike: float = 0.01
    regions_alike: float = 0.1
    # Shares of the budget for the products of covariates, one and several, and for the energy. Chosen on ABIDE.
    covariate_share: float = 0.05
    covariates_share: float = 0.2
    energy_share: float = 0.03
    # Least eigenvalue of the products of covariates over the number of people: noise must not make it vanish.
    least_eigenvalue: float = 0.02


TUNING = Tuning()
