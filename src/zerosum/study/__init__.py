"""A study: a TOML file or a call that says what is asked, of whom, at what privacy; from it the plan and the run."""

from zerosum.kernel.schemes import DEFAULT_SCHEME
from zerosum.study.budget import Budget
from zerosum.study.kept import room_of
from zerosum.study.planning import make_plan, pin, resolve
from zerosum.study.running import Unit, declared_unit, execute, run
from zerosum.study.schema import Study
from zerosum.study.site_file import SiteFile

__all__ = [
    "DEFAULT_SCHEME",
    "Budget",
    "SiteFile",
    "Study",
    "Unit",
    "declared_unit",
    "execute",
    "make_plan",
    "pin",
    "resolve",
    "room_of",
    "run",
]
