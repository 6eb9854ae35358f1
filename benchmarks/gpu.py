"""Statistics on a GPU against the bare products they need: correctness first, then a table of times.

    python benchmarks/gpu.py [--device cuda] [--small] [--only scatter people product rotation ica gradients noise]
                             [--people 4096] [--voxels 20000] [--json FILE]

Needs PyTorch with CUDA (and Triton, which comes with it on Linux; ZEROSUM_TRITON=0 leaves it out). Every statistic runs
through `total`, as at a site: parameters go to the device, the sum comes back. Before anything is timed, each is held
against the same statistic in double precision on the CPU, on part of the data. Times are medians of `--repeats` runs,
the device waited for; "bare" are the matrix products that a statistic cannot do without, by PyTorch, on the same data.

`--small` takes a hundredth of everything, to try the script without a GPU (`--device cpu`). `ica` runs a whole private
study of four sites in this process, with real noise and masks; on a CPU say how many people (`--people 16`).
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

import zerosum
from zerosum.algorithms import ICAProgram
from zerosum.arrays import Floats
from zerosum.compute.backends import fused
from zerosum.compute.devices import to_numpy
from zerosum.compute.statistic import BoundedStatistic
from zerosum.compute.units import Units
from zerosum.kernel.statistic import Adjacency, Statistic
from zerosum.kernel.terms import Noise
from zerosum.noise.sampler import Sampler
from zerosum.secagg.session import SiteSession
from zerosum.site.noise import NoiseShare
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.statistics import build
from zerosum.statistics.module_gradients import Architecture, runner

Tensor = Any
LINES: list[dict[str, Any]] = []


class Machine:
    """A device, and how time is taken on it."""

    def __init__(self, device: str, repeats: int) -> None:
        self.device, self.repeats = torch.device(device), repeats
        self.generator = torch.Generator(self.device).manual_seed(1)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, what: Callable[[], Any]) -> float:
        for _ in range(3):  # kernels are compiled, and memory that the device reads itself is taken and kept
            what()
        self.wait()
        taken = []
        for _ in range(self.repeats):
            began = perf_counter()
            what()
            self.wait()
            taken.append(perf_counter() - began)
        return statistics.median(taken)

    def total(self, stat: BoundedStatistic, units: Units) -> float:
        """The seconds of a release's sum."""
        return self.seconds(lambda: stat.total(units))

    def normal(self, *shape: int, dtype: Any = torch.float64) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.device, dtype=dtype)


def people(volumes: Tensor) -> Units:
    count, length, columns = volumes.shape
    return Units(volumes.reshape(-1, columns), np.arange(0, count * length + 1, length))


def wrong(stat: BoundedStatistic, units: Units, first: int) -> float:
    """How far the sum over the first units is from that on the CPU, over the bound of a unit and for each."""
    part = units.between(0, min(first, len(units)))
    here = stat.total(Units(to_numpy(part.rows), part.offsets, part.runs))
    apart = np.linalg.norm(stat.total(part) - here)
    return float(apart) / (stat.sensitivity(Adjacency.ADD_REMOVE) * len(part))


def line(what: str, seconds: float, bare: float | None, goal: str, error: float | None = None, **more: Any) -> None:
    ratio = None if bare is None else seconds / bare
    LINES.append({"what": what, "seconds": seconds, "bare": bare, "ratio": ratio, "goal": goal, "error": error, **more})
    parts = [f"{what:58s} {seconds * 1e3:10.3f} ms"]
    parts.append("" if bare is None else f"bare {bare * 1e3:10.3f} ms  ratio {ratio:6.3f}")
    parts.append(f"({goal})")
    parts.append("" if error is None else f"error {error:.1e}")
    parts += [f"{name} {value}" for name, value in more.items()]
    print("  ".join(part for part in parts if part), flush=True)


def scatter(machine: Machine, small: int) -> None:
    n, columns = 200_000 // small, 2000 // small
    X = machine.normal(n, columns)
    bare = machine.seconds(lambda: X.T @ X)
    rng = np.random.default_rng(0)
    placed = {"center": rng.normal(size=columns), "scale": rng.uniform(0.5, 2, columns)}
    for what, more in (("", {}), (", centred and scaled", placed)):
        stat = build("scatter", {"columns": columns, **more})
        error = wrong(stat, Units(X), 2000)
        line(f"1 scatter {n} x {columns}{what}", machine.total(stat, Units(X)), bare, "<= 1.2", error)
    Q = np.linalg.qr(rng.normal(size=(columns, min(100, columns // 2))))[0]
    stat, Qt = build("scatter", {"columns": columns, "projection": Q, **placed}), torch.from_numpy(Q).to(X)
    bare = machine.seconds(lambda: (X @ Qt).T @ (X @ Qt))
    error = wrong(stat, Units(X), 2000)
    line(f"  the same, projected to {Q.shape[1]}", machine.total(stat, Units(X)), bare, "", error)


def scatter_people(machine: Machine, small: int) -> None:
    for count, length, columns in ((4096, 250, 900), (800, 250, 2000)):
        count, columns = count // small, columns // small
        X = machine.normal(count, length, columns)
        flat = X.reshape(-1, columns)
        few = max(1, (1 << 30) // (length * columns * 8))

        def products(X: Tensor = X, flat: Tensor = flat, few: int = few) -> None:
            _ = flat.T @ flat
            for part in X.split(few):
                _ = part @ part.transpose(1, 2)

        bare = machine.seconds(products)
        stat = build("scatter", {"columns": columns, "per_recording": "standardise"})
        error = wrong(stat, people(X), 8)
        what = f"1 scatter of people {count} x {length} x {columns}, standardised"
        line(what, machine.total(stat, people(X)), bare, "<= 1.25", error)
        del X, flat


def pair_of_products(machine: Machine, X: Tensor, Q: Tensor) -> tuple[float, Tensor]:
    seen = X @ Q
    bare = machine.seconds(lambda: X.T @ (X @ Q))
    ways = {
        "X Q": lambda: X @ Q,
        "(Q' X')'": lambda: (Q.T @ X.T).T,
        "X' S": lambda: X.T @ seen,
        "(S' X)'": lambda: (seen.T @ X).T,
    }
    print("  " + ", ".join(f"{name} {machine.seconds(way) * 1e3:.2f} ms" for name, way in ways.items()))
    return bare, seen


def scatter_product(machine: Machine, small: int) -> None:
    n, columns = 20_000 // small, 50_000 // small
    X = machine.normal(n, columns, dtype=torch.float32)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(columns, 40)))[0]
    doubles, Qt = X.double(), torch.from_numpy(Q).to(machine.device)
    bare, seen = pair_of_products(machine, doubles, Qt)
    del doubles, seen

    def stored() -> Tensor:
        doubles = X.double()
        return doubles.T @ (doubles @ Qt)

    whole = machine.seconds(stored)
    stat = build("scatter_product", {"columns": columns, "basis": Q})
    error = wrong(stat, Units(X), 100)
    taken = machine.total(stat, Units(X))
    what = f"2 scatter_product {n} x {columns} singles, 40"
    line(what, taken, whole, "<= 1.4; bare: as doubles, then the products", error)
    line("  against the products alone", taken, bare, "", error)


def rotation(machine: Machine, small: int) -> None:
    count, length, columns = 16_384 // small, 250, 20
    X = machine.normal(count, length, columns)
    W = np.linalg.qr(np.random.default_rng(0).normal(size=(columns, columns)))[0]
    made = {"columns": columns, "unmixing": W}
    for score in ("tanh", "volatility", "both"):
        stat = build("unmixing_score", {**made, "scores": (score,) * columns})
        error = wrong(stat, people(X), 256)
        line(f"3 unmixing {count} x {length} x {columns}, {score}", machine.total(stat, people(X)), None, "<= 4", error)
    stat = build("unmixing_score", {**made, "per_recording": "center"})
    line("  the same, centred", machine.total(stat, people(X)), None, "", wrong(stat, people(X), 256))
    stat, some = build("fourth_cumulants", made), people(X[:4096])
    taken = machine.total(stat, some)
    line(f"  fourth_cumulants {len(some)} x {length} x {columns}", taken, None, "", wrong(stat, some, 64))
    edges = np.linspace(0, 0.25, 5)
    stat = build("band_scatter", {"columns": columns, "projection": W, "edges": edges, "seconds": 2.0})
    taken = machine.total(stat, people(X))
    line(f"  band_scatter {count} x {length} x {columns}, 4 bands", taken, None, "", wrong(stat, people(X), 64))


def others(machine: Machine, small: int) -> None:
    """Records of the statistics of tables: against one pass of reading them."""
    n, columns = 1_000_000 // small, 100
    X = machine.normal(n, columns) / 10
    rng = np.random.default_rng(0)
    bare = machine.seconds(lambda: X.T @ X)
    ends = {"clip": 1.0, "lower": np.full(columns, -1.0), "upper": np.full(columns, 1.0)}
    slopes = rng.normal(size=columns) / 10
    cases: dict[str, dict[str, Any]] = {
        "vector_sum": ends,
        "second_moment": {"clip": 1.0},
        "cluster_sums": {**ends, "centers": rng.normal(size=(20, columns)) / 10},
        "mixture_sums": {
            "means": rng.normal(size=(10, columns)) / 10,
            "variances": np.full(10, 0.1),
            "radii": np.ones(10),
            "weights": np.full(10, 0.1),
        },
        "column_moments": ends,
        "residual_moment": {**ends, "coefficients": slopes},
        "score_norms": {**ends, "coefficients": slopes, "edges": np.linspace(0, 4, 13)},
        "score_moment": {**ends, "coefficients": slopes},
        "newton_step": {**ends, "coefficients": slopes},
        "fit_histogram": {**ends, "coefficients": slopes, "edges": np.linspace(-1, 1, 21)},
    }
    for name, more in cases.items():
        stat = build(name, {"columns": columns, **more})
        error = wrong(stat, Units(X), 2000)
        line(f"  {name} {n} x {columns}", machine.total(stat, Units(X)), bare, "bare: X'X", error)
    stat = build("histogram", {"bins": 1000, "edges": np.linspace(-1, 1, 1001)})
    column = X[:, :1].contiguous()
    taken = machine.total(stat, Units(column))
    line(f"  histogram {n}, 1000 bins", taken, None, "", wrong(stat, Units(column), 2000))


@contextmanager
def timed(clock: dict[str, float], *what: tuple[type, str, str]) -> Iterator[None]:
    """Adds up the seconds that methods take."""
    before = [(kind, name, getattr(kind, name)) for kind, name, _as in what]

    def wrapped(method: Any, called: str) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            began = perf_counter()
            try:
                return method(*given, **named)
            finally:
                clock[called] += perf_counter() - began

        return call

    for (kind, name, method), (_kind, _name, called) in zip(before, what, strict=True):
        setattr(kind, name, wrapped(method, called))
    try:
        yield
    finally:
        for kind, name, method in before:
            setattr(kind, name, method)


def brains(machine: Machine, count: int, length: int, voxels: int, components: int) -> Tensor:
    """People's volumes in single precision: heavy-tailed sources on smooth maps, and noise."""
    X = torch.empty(count, length, voxels, dtype=torch.float32, device=machine.device)
    maps = machine.normal(components, voxels, dtype=torch.float32)
    for part in X.split(32):
        sources = machine.normal(len(part), length, components, dtype=torch.float32)
        sources = sources * sources.abs()
        torch.matmul(sources, maps, out=part)
        part += machine.normal(*part.shape, dtype=torch.float32)
    return X


def ica(machine: Machine, count: int, voxels: int) -> None:
    """A whole study of four sites: seconds end to end, and where they go."""
    components, length, sites = 20, 250, 4
    volumes = [brains(machine, count // sites, length, voxels, components) for _ in range(sites)]
    if machine.device.type == "cpu":
        units = {f"site-{s}": people(X.numpy()) for s, X in enumerate(volumes)}
        units = {name: Units(np.asarray(each.rows), each.offsets) for name, each in units.items()}
    else:
        units = {f"site-{s}": people(X) for s, X in enumerate(volumes)}
    algorithm = ICAProgram(columns=tuple(f"v{i}" for i in range(voxels)), n_components=components, solver="fixed-point")
    clock: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as folder:
        policies = {
            name: Policy(
                population=name, data="synthetic", unit="person", epsilon=100.0, ledger=Path(folder, f"{name}.sqlite")
            )
            for name in units
        }
        parts: dict[str, float] = defaultdict(float)

        def total(self: Site, units: Units, statistic: Statistic, bound: float, noise: Noise = "gaussian") -> Floats:
            began = perf_counter()
            try:
                return plain(self, units, statistic, bound, noise)
            finally:
                parts[statistic.name] += perf_counter() - began

        plain = Site._total
        Site._total = total  # type: ignore[method-assign]
        watched = (Units, "check", "check"), (NoiseShare, "noisy", "noise"), (SiteSession, "mask", "masks")
        began = perf_counter()
        try:
            with timed(clock, *watched):
                result = zerosum.run(algorithm, units, epsilon=4.0, delta=1e-5, unit="person", policies=policies)
        finally:
            Site._total = plain  # type: ignore[method-assign]
        whole = perf_counter() - began
    shares = {name: f"{taken:.2f} s" for name, taken in {**parts, **clock}.items()}
    rest = whole - sum(parts.values()) - sum(clock.values())
    goal = "whole study, seconds"
    line(f"4 ICA {count} people x {length} x {voxels}", whole, None, goal, None, **shares, rest=f"{rest:.2f} s")
    noise = (clock["noise"] + clock["masks"]) / whole
    print(f"  noise and masks take {100 * noise:.1f} % of the whole; rounds: {len(result.report.releases)}")


def gradients(machine: Machine, small: int) -> None:
    count = 32_768 // small
    x, y = machine.normal(count, 784, dtype=torch.float32), torch.arange(count, device=machine.device) % 10
    rows = torch.cat([x, y[:, None].to(x)], dim=1)
    shape = (1, 28, 28)
    weights = Architecture.of("tanh-cnn", {}, shape, 10, "float32").start(0)
    for batch in (256, 1024, 4096):
        stat = build(
            "module_gradient",
            {"columns": 785, "clip": 0.1, "classes": 10, "module": "tanh-cnn", "shape": shape, "weights": weights,
             "batch": batch},
        )  # fmt: skip
        architecture = Architecture.of("tanh-cnn", {}, shape, 10, "float32")
        run = runner(architecture, batch, None if machine.device.type == "cpu" else str(machine.device))
        module = architecture.built().to(machine.device)  # as its author wrote it

        def backward(module: Any = module, batch: int = batch) -> None:
            for own, label in zip(x.split(batch), y.split(batch), strict=True):
                module.zero_grad()
                torch.nn.functional.cross_entropy(module(own.reshape(-1, *shape)), label).backward()

        bare = machine.seconds(backward)
        taken = machine.total(stat, Units(rows))
        part = Units(rows[:200])
        error = float(np.linalg.norm(stat.total(part) - build(stat.name, stat.parameters()).total(
            Units(to_numpy(part.rows))))) / (0.1 * 200)  # fmt: skip
        speed = f"{count / taken:.0f} examples/s"
        line(
            f"5 gradients tanh-cnn, batches of {batch} (granted {run.batch})",
            taken,
            bare,
            "bare: backward",
            error,
            speed=speed,
        )
        if importlib.util.find_spec("opacus") is not None:
            peer = machine.seconds(opacus(module, 0.1, x.reshape(-1, *shape), y, batch))
            line(f"  against Opacus, batches of {batch}", taken, peer, "", None, speed=f"{count / peer:.0f} examples/s")
    if importlib.util.find_spec("opacus") is None:
        print("  Opacus is not installed here")


def opacus(module: Any, clip: float, x: Tensor, y: Tensor, batch: int) -> Callable[[], None]:
    """The same clipped sum by Opacus: gradients of single examples from hooks."""
    from opacus.grad_sample import GradSampleModule  # type: ignore[import-not-found,unused-ignore]

    wrapped = GradSampleModule(module.train(), loss_reduction="sum")

    def step() -> None:
        for own, label in zip(x.split(batch), y.split(batch), strict=True):
            wrapped.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(wrapped(own), label, reduction="sum").backward()
            each = [parameter.grad_sample for parameter in wrapped.parameters()]
            norms = torch.stack([part.flatten(1).norm(dim=1) for part in each], dim=1).norm(dim=1)
            factors = clip / norms.clamp(min=clip)
            _ = [torch.einsum("i,i...->...", factors, part) for part in each]

    return step


def noise(machine: Machine, small: int) -> None:
    """What a release of many numbers costs on the CPU beside the sum itself."""
    for size in (2_001_000 // small, 2_000_000 // small):
        sampler = Sampler.system()
        began = perf_counter()
        sampler.steps(size, 2.0**22)
        line(f"6 noise for {size} numbers, one core", perf_counter() - began, None, "beside 1 and 2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[Machine, int], None]] = {
        "scatter": scatter,
        "people": scatter_people,
        "product": scatter_product,
        "rotation": rotation,
        "others": others,
        "gradients": gradients,
        "noise": noise,
    }
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[*parts, "ica"], default=[*parts, "ica"])
    parser.add_argument("--people", type=int, default=4096)
    parser.add_argument("--voxels", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = Machine(given.device, given.repeats)
    fast = machine.device.type == "cuda" and fused.serves(machine.normal(1))
    print(f"{given.device}, PyTorch {torch.__version__}, fused kernels: {'yes' if fast else 'no'}", flush=True)
    small = 50 if given.small else 1
    for name, part in parts.items():
        if name in given.only:
            try:
                part(machine, small)
            except Exception as error:  # the other parts still run
                print(f"{name} failed: {type(error).__name__}: {str(error)[:2000]}", flush=True)
            gc.collect()
            if machine.device.type == "cuda":
                torch.cuda.empty_cache()  # else what a part before it left in pieces is in the way
    if "ica" in given.only:
        ica(machine, given.people, given.voxels // small)
    if given.json is not None:
        given.json.write_text(json.dumps(LINES, indent=1) + "\n")


if __name__ == "__main__":
    main()
