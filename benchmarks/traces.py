"""What one `zerosum run` calls and builds, for three small studies in this process.

    python benchmarks/traces.py

Counts calls of functions of this package, distinct functions, frames of this package from the command down to the sum
over a site's units (`sum_block`), and the plans, algorithms and noise laws that are built. A second run of each study
is traced, so that loading of modules and caches of the process do not count.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import zerosum
from zerosum.algorithms import Algorithm
from zerosum.cli import _run
from zerosum.kernel.plan import Plan
from zerosum.kernel.schemes import NoiseLaw

SOURCE = str(Path(zerosum.__file__).parent)
SITES = ("north", "east", "south")
PEOPLE = 400
#: The function that builds an object of each kind. Sites read the plan from the bytes that they are sent.
BUILT: dict[str, tuple[type[Any], str]] = {
    "plans": (Plan, "__init__"),
    "plans read": (Plan, "from_json"),
    "algorithms": (Algorithm, "__init__"),
    "noise laws": (NoiseLaw, "__init__"),
}

COLUMNS = {"mean": ("a", "b"), "pca": ("a", "b", "c", "d"), "logistic-regression": ("a", "b", "y")}
QUESTIONS = {
    "mean": '[parameters]\ncolumns = ["a", "b"]\nlower = [0, 0]\nupper = [10, 10]\n',
    "pca": '[parameters]\ncolumns = ["a", "b", "c", "d"]\nn_components = 2\n'
    "lower = [0, 0, 0, 0]\nupper = [10, 10, 10, 10]\n",
    "logistic-regression": '[design]\nresponse = "y"\n[design.ranges]\na = [0, 10]\nb = [0, 10]\n'
    "[design.levels]\ny = [0, 1]\n",
}


@dataclass
class Trace:
    """Counts of one run."""

    calls: int = 0
    functions: set[CodeType] = field(default_factory=set)
    frames: int = 0
    built: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BUILT, 0))

    def seen(self, frame: FrameType, event: str, _: object) -> None:
        """Profile function (`sys.setprofile`)."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE):
            return
        self.calls += 1
        self.functions.add(code)
        if code.co_name == "sum_block":
            above: FrameType | None = frame
            depth = 0
            while above is not None:
                depth += above.f_code.co_filename.startswith(SOURCE)
                above = above.f_back
            self.frames = max(self.frames, depth)

    def record(self) -> dict[str, int]:
        return {"calls": self.calls, "functions": len(self.functions), "frames": self.frames, **self.built}


@contextlib.contextmanager
def counted(built: dict[str, int]) -> Iterator[None]:
    """Count calls of the functions in `BUILT`."""
    originals = {name: inspect.getattr_static(kind, function) for name, (kind, function) in BUILT.items()}

    def counting(name: str, original: Any) -> Callable[..., Any]:
        def build(*args: Any, **kwargs: Any) -> Any:
            built[name] += 1
            return getattr(original, "__func__", original)(*args, **kwargs)

        return staticmethod(build) if isinstance(original, staticmethod) else build

    try:
        for name, (kind, function) in BUILT.items():
            setattr(kind, function, counting(name, originals[name]))
        yield
    finally:
        for name, (kind, function) in BUILT.items():
            setattr(kind, function, originals[name])


def write_study(folder: Path, algorithm: str) -> Path:
    """A study file over three sites with tables, in a new folder."""
    folder.mkdir(parents=True)
    columns, random = COLUMNS[algorithm], np.random.default_rng(3)
    sites = ""
    for name in SITES:
        rows = random.uniform(0, 10, (PEOPLE, len(columns))).round(3)
        if columns[-1] == "y":
            rows[:, -1] = rows[:, 0] > rows[:, 1]
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header=",".join(columns), comments="", fmt="%g")
        sites += f'\n[[sites]]\nname = "{name}"\nunits = {PEOPLE}\ndata = "{name}.csv"\n'
        sites += f'[sites.policy]\npopulation = "{name}"\nunit = "person"\nepsilon = 1e3\ndelta = 1e-2\n'
    study = f'name = "trace"\nalgorithm = "{algorithm}"\n[unit]\nkind = "person"\n'
    study += "[privacy]\nepsilon = 4.0\ndelta = 1e-6\n"
    study += QUESTIONS[algorithm] + sites
    (folder / "study.toml").write_text(study, encoding="utf-8")
    return folder / "study.toml"


def trace_run(study: Path, out: Path) -> Trace:
    """Trace `zerosum run` on a study file."""
    trace = Trace()
    with counted(trace.built), contextlib.redirect_stdout(io.StringIO()) as printed:
        sys.setprofile(trace.seen)
        try:
            code = _run(["run", str(study), "--out", str(out), "--json"])
        finally:
            sys.setprofile(None)
    if code:
        raise RuntimeError(f"{study} ended with code {code}: {printed.getvalue()}")
    return trace


def traces(folder: Path) -> dict[str, Trace]:
    """The trace of each study, in a folder that also holds their ledgers."""
    os.environ["ZEROSUM_STATE"] = str(folder / "state")
    found = {}
    for algorithm in COLUMNS:
        study = write_study(folder / algorithm, algorithm)
        trace_run(study, folder / algorithm / "first")
        found[algorithm] = trace_run(study, folder / algorithm / "second")
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {name: trace.record() for name, trace in traces(Path(folder)).items()}
    print(f"{'':14}" + "".join(f"{name:>21}" for name in found))
    for row in next(iter(found.values())):
        print(f"{row:14}" + "".join(f"{each[row]:21}" for each in found.values()))


if __name__ == "__main__":
    main()
