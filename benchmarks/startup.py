"""CPU time of starts of Zerosum, each over the CPU time of `import numpy`.

    python benchmarks/startup.py [--repeats 15]

Every case is a new process. The cases alternate, so that load on the machine affects them alike, and the table has the
median of user and system time together. Goals: `import zerosum` at most 4, the two commands at most 5.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys

ACCOUNT = "account --scheme zero-sum --sites 5 --colluders 1 --sensitivity 1 --delta 1e-5 --epsilon 1"


def command(line: str) -> str:
    """Code that does what the script `zerosum` does."""
    return f"import sys; sys.argv = ['zerosum', *{line.split()}]; from zerosum_command import main; main()"


CASES = {
    "import numpy": "import numpy",
    "import zerosum": "import zerosum",
    "zerosum.Mean": "import zerosum; zerosum.Mean",
    "zerosum.run": "import zerosum; zerosum.run",
    "zerosum --help": command("--help"),
    "zerosum account": command(ACCOUNT),
}


def cpu_seconds(code: str) -> float:
    """User and system time of a new Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(repeats: int) -> dict[str, float]:
    """Median CPU time of every case."""
    for code in CASES.values():  # compiled modules and the file cache, not measured
        cpu_seconds(code)
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(repeats):
        for name, code in CASES.items():
            times[name].append(cpu_seconds(code))
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="processes of each case")
    found = measure(parser.parse_args().repeats)
    print(f"{'':18}{'CPU seconds':>12}{'over numpy':>12}")
    for name, seconds in found.items():
        print(f"{name:18}{seconds:12.3f}{seconds / found['import numpy']:12.2f}")


if __name__ == "__main__":
    main()
