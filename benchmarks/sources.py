"""Seconds and peak memory of sums over a Parquet file, beside pyarrow and DuckDB on the same file.

    python benchmarks/sources.py [--rows 100000 1000000 10000000] [--columns 20] [--memory "500 MB"] [--repeats 3]

Every figure is that of a new process that reads the file from its beginning: units are loaded by
`zerosum.data.tables.load_units` with the memory setting, and one statistic is summed over them. Peers, in the same
run: `pyarrow` reads the file into memory and sums (mean) or multiplies (covariance) with NumPy; `duckdb` computes the
same aggregates by SQL, if it is installed. The table has the fastest of the repeats, which alternate, so that load
affects all readers alike. Memory is the largest resident set (VmHWM) less that of a process that only imports.
Goal: a mean at most 1.5 times, a covariance at most 2 times pyarrow's seconds, below 1 GB whatever the rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CHILD = """
import sys, time, json
from pathlib import Path
import numpy as np
path, reader, case, width, memory, folder = Path(sys.argv[1]), *sys.argv[2:4], int(sys.argv[4]), *sys.argv[5:7]
columns = [f"c{at}" for at in range(width)]
lower, upper = np.full(width, -4.0), np.full(width, 4.0)
def peak():
    # Not ru_maxrss, which a child process inherits from its parent on Linux.
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
if reader == "zerosum":
    from zerosum.data.spool import Storage, memory_bytes
    from zerosum.data.tables import load_units
    from zerosum.statistics.histogram import Histogram
    from zerosum.statistics.moments import SecondMoment
    from zerosum.statistics.vectors import VectorSum
    bounds = {"columns": width, "lower": lower, "upper": upper}
    statistic = {
        "mean": lambda: VectorSum(clip=width**0.5, **bounds),
        "covariance": lambda: SecondMoment(clip=width**0.5, **bounds),
        "histogram": lambda: Histogram(bins=64, edges=np.linspace(-4, 4, 65)),
    }[case]()
    wanted = columns[:1] if case == "histogram" else columns
elif reader == "pyarrow":
    import pyarrow.parquet as pq
else:
    import duckdb
before, began = peak(), time.perf_counter()
if reader == "zerosum":
    total = statistic.total(load_units(path, columns=wanted, storage=Storage(memory_bytes(memory), Path(folder))).units)
elif reader == "pyarrow":
    table = pq.read_table(path, columns=columns[:1] if case == "histogram" else columns)
    rows = np.column_stack([table.column(name).to_numpy() for name in table.column_names])
    if case == "mean":
        total = rows.sum(axis=0)
    elif case == "covariance":
        total = rows.T @ rows
    else:
        total = np.histogram(rows[:, 0], np.linspace(-4, 4, 65))[0]
else:
    pairs = [f"sum({a}*{b})" for at, a in enumerate(columns) for b in columns[at:]]
    wanted = {"mean": [f"sum({name})" for name in columns], "covariance": pairs, "histogram": []}[case]
    query = f"SELECT {', '.join(wanted)} FROM '{path}'"
    if case == "histogram":
        query = f"SELECT floor((c0 + 4) * 8) AS bin, count(*) FROM '{path}' GROUP BY bin"
    total = duckdb.sql(query).fetchall()
print(json.dumps([time.perf_counter() - began, peak() - before]))
"""


def write(path: Path, rows: int, columns: int) -> None:
    """Normal numbers in row groups of 10^5 rows."""
    rng = np.random.default_rng(0)
    schema = pa.schema([(f"c{at}", pa.float64()) for at in range(columns)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, 100_000):
            some = rng.normal(size=(columns, min(100_000, rows - start)))
            writer.write_table(pa.table(list(some), schema=schema))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--memory", default="500 MB")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    readers = ["zerosum", "pyarrow"]
    if subprocess.run([sys.executable, "-c", "import duckdb"], capture_output=True).returncode == 0:
        readers.append("duckdb")
    print(f"{'rows':>10} {'sum':<11} " + " ".join(f"{reader:>9} s {'MB':>7}" for reader in readers) + "   over pyarrow")
    with TemporaryDirectory() as folder:
        for rows in given.rows:
            path = Path(folder, f"{rows}.parquet")
            write(path, rows, given.columns)
            for case in ("mean", "covariance", "histogram"):
                best: dict[str, list[float]] = {}
                for _ in range(given.repeats):
                    for reader in readers:
                        options = [str(path), reader, case, str(given.columns), given.memory, folder]
                        run = subprocess.run([sys.executable, "-c", CHILD, *options], capture_output=True, text=True)
                        if run.returncode:
                            raise SystemExit(run.stderr)
                        figures = json.loads(run.stdout.splitlines()[-1])  # DuckDB prints its progress before
                        best[reader] = min(best.get(reader, figures), figures)
                times = " ".join(f"{best[reader][0]:>11.2f} {best[reader][1]:>7.0f}" for reader in readers)
                print(f"{rows:>10} {case:<11} {times}   {best['zerosum'][0] / best['pyarrow'][0]:.2f}", flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
