"""Accuracy forecasts of a study before it runs: exact noise of the plan on public or synthetic data, at no privacy
cost."""

from zerosum.study.what_if.comparing import ALL, SEEDS, Comparison, compare
from zerosum.study.what_if.forecast import Advisor, Forecast, LineForecast
from zerosum.study.what_if.guesses import Guesses, Shape, Spectrum, read_like, read_spectrum
from zerosum.study.what_if.settings import Setting
from zerosum.study.what_if.sweep import LARGEST, WHOLE, WhatIf, what_if

__all__ = [
    "ALL",
    "LARGEST",
    "SEEDS",
    "WHOLE",
    "Advisor",
    "Comparison",
    "Forecast",
    "Guesses",
    "LineForecast",
    "Setting",
    "Shape",
    "Spectrum",
    "WhatIf",
    "compare",
    "read_like",
    "read_spectrum",
    "what_if",
]
