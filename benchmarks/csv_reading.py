"""Time and memory of reading CSV files, over pyarrow's own reading of the same file.

    python benchmarks/csv_reading.py [--scale 1] [--repeats 3] [--source src]

Every reading is a new process that reads the file once before it is timed in a smaller form (imports, threads). The
readers alternate, so that load on the machine affects them alike, and the table has the fastest of the repeats.
`pyarrow` is `pyarrow.csv.read_csv` with types by inference, then one NumPy array of the numeric columns. `units` reads
with a unit column (three rows each), `category` with one column of declared categories, `tokens` with missing values
written as NA in 1 % of the cells. `--source` is the folder of another version of Zerosum, for a comparison.
Goal: at most twice pyarrow's seconds for numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyarrow import csv

SHAPES = {"long": (1_000_000, 10), "wide": (10_000, 2000)}
CASES = {"long": ("numbers", "units", "category", "tokens"), "wide": ("numbers",)}
CHILD = """
import json, sys, time
from pathlib import Path
import numpy as np
import pyarrow.csv
path, small, reader, case, width = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:5], int(sys.argv[5])
columns = [f"c{at}" for at in range(width)]
options = {"columns": columns}
if case == "units":
    options["unit_column"] = "who"
if case == "category":
    options |= {"columns": [*columns, "sex"], "categories": {"sex": ["f", "m", "x"]}}
if case == "tokens":
    options |= {"missing": columns, "missing_tokens": ["NA"]}
def read(path):
    if reader == "pyarrow":
        table = pyarrow.csv.read_csv(path)
        return np.column_stack([table.column(name).to_numpy() for name in columns])
    from zerosum.data.tables import load_units
    return np.asarray(load_units(path, **options).units.rows)
read(small)
before = time.perf_counter()
rows = read(path)
seconds = time.perf_counter() - before
# Not ru_maxrss, which a child process inherits from its parent on Linux.
memory = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps([seconds, memory, float(np.nansum(rows[:, :width]))]))
"""


def write(path: Path, rows: int, width: int, case: str) -> None:
    """A table of normal numbers with 16 digits, with the further columns of the case."""
    rng = np.random.default_rng(7)
    values = rng.normal(size=(rows, width))
    values[rng.random(size=values.shape) < (0.01 if case == "tokens" else 0.0)] = np.nan
    columns = {f"c{at}": pa.array(values[:, at], from_pandas=True) for at in range(width)}
    if case == "units":
        columns["who"] = pa.array([f"person-{at // 3}" for at in rng.permutation(rows)])
    if case == "category":
        columns["sex"] = pa.array(["f", "m", "x"]).take(pa.array(rng.integers(3, size=rows)))
    csv.write_csv(pa.table(columns), path)
    if case == "tokens":  # pyarrow writes a null as an empty cell
        text = path.read_text(encoding="utf-8")
        path.write_text(
            text.replace(",,", ",NA,").replace(",,", ",NA,").replace("\n,", "\nNA,").replace(",\n", ",NA\n")
        )


def measure(path: Path, small: Path, reader: str, case: str, width: int, source: Path) -> tuple[float, float, float]:
    """Seconds, peak memory in MiB, and the sum of all numbers, of one reading in a new process."""
    arguments = [str(path), str(small), reader, case, str(width)]
    environment = os.environ | {"PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, "-c", CHILD, *arguments], env=environment, check=True, capture_output=True)
    return tuple(json.loads(done.stdout))


def main() -> None:
    """Write the files, read them, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="part of the rows")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1] / "src")
    given = parser.parse_args()
    print(f"{'table':20}{'MB':>6}{'pyarrow s':>11}{'MiB':>7}{'zerosum s':>11}{'MiB':>7}{'ratio s':>9}{'ratio MiB':>10}")
    for shape, cases in CASES.items():
        rows, width = SHAPES[shape]
        for case in cases:
            with TemporaryDirectory() as folder:
                path, small = Path(folder, "table.csv"), Path(folder, "small.csv")
                write(path, int(rows * given.scale), width, case)
                write(small, 30, width, case)
                found: dict[str, list[tuple[float, float, float]]] = {"pyarrow": [], "zerosum": []}
                for _ in range(given.repeats):
                    for reader, results in found.items():
                        results.append(measure(path, small, reader, case, width, given.source))
                megabytes = path.stat().st_size / 1e6
            (own, own_memory, own_sum), (base, memory, total) = min(found["zerosum"]), min(found["pyarrow"])
            # Units are in another order, so that the sums may differ in the last bits.
            if not np.isclose(own_sum, total, rtol=0, atol=1e-6):
                raise SystemExit(f"{shape} {case}: the readers found different numbers")
            print(
                f"{shape + ' ' + case:20}{megabytes:6.0f}{base:11.2f}{memory:7.0f}{own:11.2f}{own_memory:7.0f}"
                f"{own / base:9.2f}{own_memory / memory:10.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
