"""The cells of a table, computed by several processes; an interrupted run goes on.

A cell is a tuple of names and numbers, its seed among them, and says all that its result depends on. Results are
printed as they come and appended to a file as JSON lines; a cell that stands there is not computed again. Processes
have one thread each for linear algebra.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

Cell = tuple[str | int | float, ...]
Results = dict[Cell, list[float]]
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def known(path: Path | None) -> Results:
    """What a file of earlier results says; a line that was cut off when its run ended is left out."""
    found: Results = {}
    for line in path.read_text().splitlines() if path and path.exists() else []:
        try:
            each = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[tuple(each["cell"])] = each["found"]
    return found


def computed(
    cells: Iterable[Cell], work: Callable[[Cell], tuple[Cell, list[float]]], jobs: int, path: Path | None = None
) -> Results:
    """The results of these cells. `work` is a function that another process can import; it returns its cell too."""
    wanted, found, began = list(dict.fromkeys(cells)), known(path), time.perf_counter()
    missing = [cell for cell in wanted if cell not in found]
    for name in _THREADS:  # read by those that are started from here on
        os.environ[name] = "1"
    if path and path.exists() and not path.read_bytes().endswith(b"\n"):
        path.write_bytes(path.read_bytes() + b"\n")
    with multiprocessing.get_context("spawn").Pool(max(1, min(jobs, len(missing)))) as pool:
        for done, (cell, result) in enumerate(pool.imap_unordered(work, missing), 1):
            found[cell] = result
            shown = " ".join(map(str, cell)), " ".join(f"{each:.4f}" for each in result)
            print(f"[{done}/{len(missing)}, {time.perf_counter() - began:.0f} s] {shown[0]}: {shown[1]}", flush=True)
            if path:
                with path.open("a") as file:
                    file.write(json.dumps({"cell": cell, "found": result}) + "\n")
    return {cell: found[cell] for cell in wanted}
