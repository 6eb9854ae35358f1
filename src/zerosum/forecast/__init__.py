"""Accuracy forecasts of a study before it runs: exact noise of the plan on public or synthetic data, at no privacy
cost.

    assumptions     what is assumed about the data, from public knowledge
    structures      plausible structures of the data where less is stated than the error depends on
    populations     people drawn from the assumptions, or from a public file
    measures        which numbers of a result count, and on which scale
    forecasting     the error in one setting: by formula, or by simulation of the plan's noise
    sweep           the error for other epsilons, people, sites and colluders, and the epsilon for a wanted error
    scheme_comparison   one study under every scheme, run in full

Nothing here reads private data. A forecast is exact about the noise, which the plan fixes, and approximate about the
data, which are assumed.
"""

from zerosum.forecast.assumptions import Assumptions, ColumnShape, Spectrum, read_like, read_spectrum
from zerosum.forecast.forecasting import Advisor, Forecast, LineForecast
from zerosum.forecast.scheme_comparison import ALL, SEEDS, Comparison, compare
from zerosum.forecast.settings import Setting
from zerosum.forecast.structures import Structure, structures_of
from zerosum.forecast.sweep import LARGEST, SUMMARY, StructureForecast, WhatIf, what_if

__all__ = [
    "ALL",
    "LARGEST",
    "SEEDS",
    "SUMMARY",
    "Advisor",
    "Assumptions",
    "ColumnShape",
    "Comparison",
    "Forecast",
    "LineForecast",
    "Setting",
    "Spectrum",
    "Structure",
    "StructureForecast",
    "WhatIf",
    "compare",
    "read_like",
    "read_spectrum",
    "structures_of",
    "what_if",
]
