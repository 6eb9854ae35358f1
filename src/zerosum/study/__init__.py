"""Studies: the study file (TOML) or Python call that states question, sites and privacy, its plan, and its
execution."""

from zerosum.kernel.schemes import DEFAULT_SCHEME
from zerosum.study.archive import result_bytes
from zerosum.study.budget import Budget
from zerosum.study.planning import make_plan, pin, resolve
from zerosum.study.running import Unit, declared_unit, execute, run
from zerosum.study.site_file import SiteFile
from zerosum.study.study_file import Study

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
    "result_bytes",
    "run",
]
