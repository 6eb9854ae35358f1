"""A study: a TOML file or a call that says what is asked, of whom, at what privacy; from it the plan and the run."""

from zerosum.study.planning import make_plan, pin, resolve
from zerosum.study.running import DEFAULT_SCHEME, Unit, declared_unit, execute, run
from zerosum.study.schema import Study

__all__ = ["DEFAULT_SCHEME", "Study", "Unit", "declared_unit", "execute", "make_plan", "pin", "resolve", "run"]
