"""Seconds and peak memory of sums and studies over a Parquet file, beside pyarrow and DuckDB on the same file.

    python benchmarks/sources.py [--rows 100000 1000000 10000000] [--cases mean covariance histogram logistic pca]
        [--memory "500 MB"] [--repeats 3] [--folder FOLDER]
    python benchmarks/sources.py --cases persons --rows 10000000

Every figure is that of a new process that reads the file from its beginning.

- `mean`, `covariance`, `histogram`: units are loaded by `zerosum.data.tables.load_units` with the memory setting, and
  one statistic is summed over them. Peers, in the same run: `pyarrow` reads the file and sums (mean) or multiplies
  (covariance) with NumPy, in batches for more rows than `--whole`; `duckdb` computes the same aggregates by SQL, if it
  is installed.
- `logistic`, `pca`: a whole study of three sites in one process, two of which have 1000 rows, with plan, ledgers, all
  rounds and result. The peers only read: `pyarrow` sums as for the mean.
- `persons`: rows in random order, ten of each person; a mean with one contribution of each person. Peers: `pyarrow`
  and `duckdb` compute a mean of means by group.

The table has the least of the repeats, which alternate, so that load affects all readers alike: seconds of the clock,
seconds of the processor, which other work on the machine affects less, and MB of the largest resident set (VmHWM) of
the process, the interpreter and all libraries included. The last columns are ratios of both seconds to pyarrow's.
Goal: a mean at most 1.5 times, a covariance at most 2 times pyarrow's seconds, below 1 GB whatever the rows.
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
import pyarrow.parquet as pq

COLUMNS = [f"c{at}" for at in range(20)]
CASES = ("mean", "covariance", "histogram", "logistic", "pca")
# Rows of a file above which pyarrow's peer reads in batches, since it would not fit into memory (16 GB at 10^8 rows).
WHOLE = 20_000_000
STUDY = """
name = "{case}"
algorithm = "{algorithm}"
[unit]
kind = "record"
[privacy]
epsilon = 1.0
delta = 1e-5
{question}
[[sites]]
name = "large"
data = "{file}"
limits = {{ memory = "{memory}" }}
[[sites]]
name = "b"
data = "small.parquet"
[[sites]]
name = "c"
data = "small.parquet"
"""
QUESTIONS = {
    "logistic": (
        "logistic-regression",
        '[design]\nresponse = "sick"\n[design.ranges]\n'
        + "".join(f"{name} = [-4, 4]\n" for name in COLUMNS)
        + "[design.levels]\nsick = [0, 1]\n",
    ),
    "pca": (
        "pca",
        f"[parameters]\ncolumns = {json.dumps(COLUMNS)}\nn_components = 3\n"
        f"lower = {[-4] * 20}\nupper = {[4] * 20}\nscaling = 'ranges'\n",
    ),
}
CHILD = """
import json, sys, time, warnings
from pathlib import Path
import numpy as np
path, reader, case, memory, folder, columns = Path(sys.argv[1]), *sys.argv[2:6], json.loads(sys.argv[6])
whole = sys.argv[7] == "whole"
lower, upper = np.full(20, -4.0), np.full(20, 4.0)
wanted = columns[:1] if case == "histogram" else columns
batches = 1 << 17
if reader == "zerosum":
    warnings.simplefilter("ignore")
    from zerosum.data.spool import Storage, memory_bytes
    from zerosum.data.tables import load_units
    from zerosum.statistics.histogram import Histogram
    from zerosum.statistics.moments import SecondMoment
    from zerosum.statistics.vectors import VectorSum
    from zerosum.study import Study
elif reader == "pyarrow":
    import pyarrow.parquet as pq
else:
    import duckdb
began, used = time.perf_counter(), time.process_time()
if reader == "zerosum" and case in ("logistic", "pca"):
    Study.load(Path(folder, f"{case}.toml")).run()
elif reader == "zerosum":
    bounds = {"columns": 20, "lower": lower, "upper": upper}
    statistic = {
        "covariance": lambda: SecondMoment(clip=20**0.5, **bounds),
        "histogram": lambda: Histogram(bins=64, edges=np.linspace(-4, 4, 65)),
    }.get(case, lambda: VectorSum(clip=20**0.5, **bounds))()
    owner = "person" if case == "persons" else None
    units = load_units(path, columns=wanted, unit_column=owner, storage=Storage(memory_bytes(memory), Path(folder)))
    statistic.total(units.units)
elif reader == "pyarrow" and case == "persons":
    pq.read_table(path).group_by("person").aggregate([(name, "mean") for name in columns])
elif reader == "pyarrow":
    file = pq.ParquetFile(path, pre_buffer=whole)  # batches: without it the whole file would be read ahead
    tables = [pq.read_table(path, columns=wanted)] if whole else file.iter_batches(batches, columns=wanted)
    total = 0.0
    for table in tables:
        rows = np.column_stack([table.column(name).to_numpy() for name in wanted])
        if case == "covariance":
            total = total + rows.T @ rows
        elif case == "histogram":
            total = total + np.histogram(rows[:, 0], np.linspace(-4, 4, 65))[0]
        else:
            total = total + rows.sum(axis=0)
else:
    pairs = [f"sum({a}*{b})" for at, a in enumerate(columns) for b in columns[at:]]
    means = ", ".join(f"avg({name}) AS {name}" for name in columns)
    wanted = {"covariance": pairs, "histogram": []}.get(case, [f"sum({name})" for name in columns])
    source = f"'{path}'" if case != "persons" else f"(SELECT {means} FROM '{path}' GROUP BY person)"
    query = f"SELECT {', '.join(wanted)} FROM {source}"
    if case == "histogram":
        query = f"SELECT floor((c0 + 4) * 8) AS bin, count(*) FROM '{path}' GROUP BY bin"
    duckdb.sql(query).fetchall()
seconds, used = time.perf_counter() - began, time.process_time() - used
# Not ru_maxrss, which a child process inherits from its parent on Linux.
megabytes = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps([seconds, used, megabytes]))
"""


def write(path: Path, rows: int, *, persons: bool) -> None:
    """A file of normal numbers and a response of 0 and 1, or the owner of each row, in random order."""
    rng = np.random.default_rng(0)
    last = pa.field("person", pa.string()) if persons else pa.field("sick", pa.int8())
    schema = pa.schema([*(pa.field(name, pa.float64()) for name in COLUMNS), last])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, rows, 100_000):
            count = min(100_000, rows - start)
            x = rng.normal(size=(20, count))
            if persons:
                own = pa.array(np.char.add("p", rng.integers(0, max(1, rows // 10), count).astype(str)))
            else:
                own = pa.array((rng.random(count) < 1 / (1 + np.exp(1 - x[0] + x[1] / 2))).astype(np.int8))
            writer.write_table(pa.table([*x, own], schema=schema))


def studies(folder: Path, file: Path, memory: str) -> None:
    """The study files of the cases that are whole studies."""
    for case, (algorithm, question) in QUESTIONS.items():
        text = STUDY.format(case=case, algorithm=algorithm, question=question, file=file.name, memory=memory)
        (folder / f"{case}.toml").write_text(text)


def main() -> None:
    """Write the files, read them, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--cases", nargs="+", default=CASES, choices=[*CASES, "persons"])
    parser.add_argument("--memory", default="500 MB")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--whole", type=int, default=WHOLE, help="most rows that pyarrow reads at once")
    parser.add_argument("--folder", type=Path, help="where files are written, and removed afterwards")
    given = parser.parse_args()
    readers = ["zerosum", "pyarrow"]
    if subprocess.run([sys.executable, "-c", "import duckdb"], capture_output=True).returncode == 0:
        readers.append("duckdb")
    heads = " ".join(f"{reader:>9} {'cpu':>8} {'MB':>6}" for reader in readers)
    print(f"{'rows':>10} {'case':<11} {heads}   over pyarrow")
    with TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        write(folder / "small.parquet", 1000, persons=False)
        environment = os.environ | {"ZEROSUM_STATE": str(folder / "state")}
        for rows in given.rows:
            for persons in (False, True):
                cases = [case for case in given.cases if (case == "persons") == persons]
                path = folder / f"{rows}.parquet"
                if cases:
                    write(path, rows, persons=persons)
                    studies(folder, path, given.memory)
                for case in cases:
                    best: dict[str, list[float]] = {}
                    for _ in range(given.repeats):
                        for reader in readers:
                            whole = "whole" if rows <= given.whole else "batches"
                            options = [str(path), reader, case, given.memory, name, json.dumps(COLUMNS), whole]
                            run = subprocess.run(
                                [sys.executable, "-c", CHILD, *options], env=environment, capture_output=True, text=True
                            )
                            if run.returncode:
                                raise SystemExit(run.stderr)
                            figures = json.loads(run.stdout.splitlines()[-1])  # DuckDB prints its progress before
                            best[reader] = [min(pair) for pair in zip(best.get(reader, figures), figures, strict=True)]
                    times = " ".join("{:>9.2f} {:>8.2f} {:>6.0f}".format(*best[reader]) for reader in readers)
                    clock, processor = (best["zerosum"][at] / best["pyarrow"][at] for at in (0, 1))
                    print(f"{rows:>10} {case:<11} {times}   {clock:.2f} {processor:.2f}", flush=True)
                path.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
