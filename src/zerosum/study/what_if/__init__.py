"""What a study would be worth, before anybody spends anything: from its plan's exact noise and made-up or public data."""

from zerosum.study.what_if.forecast import Advisor, Forecast
from zerosum.study.what_if.guesses import Guesses
from zerosum.study.what_if.settings import Setting
from zerosum.study.what_if.sweep import WhatIf, what_if

__all__ = ["Advisor", "Forecast", "Guesses", "Setting", "WhatIf", "what_if"]
