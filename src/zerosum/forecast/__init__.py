"""Accuracy forecasts of a study before it runs: exact noise of the plan on public or synthetic data, at no privacy
cost."""

from zerosum.forecast.assumptions import Assumptions, ColumnShape, Spectrum, read_like, read_spectrum
from zerosum.forecast.forecasting import Advisor, Forecast, LineForecast
from zerosum.forecast.scheme_comparison import ALL, SEEDS, Comparison, compare
from zerosum.forecast.settings import Setting
from zerosum.forecast.sweep import LARGEST, WHOLE, WhatIf, what_if

__all__ = [
    "ALL",
    "LARGEST",
    "SEEDS",
    "WHOLE",
    "Advisor",
    "Assumptions",
    "ColumnShape",
    "Comparison",
    "Forecast",
    "LineForecast",
    "Setting",
    "Spectrum",
    "WhatIf",
    "compare",
    "read_like",
    "read_spectrum",
    "what_if",
]
