"""The joint mean of four synthetic hospitals: the estimate, the noise that privacy adds, and the cost.

The ledgers of this example are in a temporary folder, and its policies declare the data synthetic. With real data
omit both: ledgers are then in the user's state folder, and every run counts towards a lifetime cap.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import zerosum
from zerosum.data.synthetic import COLUMNS, RANGES, hospitals

EPSILON, DELTA = 1.0, 1e-5


def main() -> None:
    data = hospitals(seed=7)
    lower, upper = np.array([RANGES[column] for column in COLUMNS]).T  # public: never taken from the data
    with TemporaryDirectory() as folder:
        policies = {
            name: zerosum.Policy(population=name, data="synthetic", ledger=Path(folder, f"{name}.sqlite"))
            for name in data
        }
        question = zerosum.Mean(
            lower=lower, upper=upper, epsilon=EPSILON, delta=DELTA, unit="person", policies=policies
        )
        found = question.fit(data)

    truth = np.vstack(list(data.values())).mean(axis=0)
    sizes = ", ".join(f"{name} ({len(rows)})" for name, rows in data.items())
    print(f"Sites: {sizes}\n")
    print(f"{'column':12} {'private mean':>12} {'+/- noise':>10} {'true mean':>10}")
    rows = zip(COLUMNS, found.mean_, found.noise_std_, truth, strict=True)
    for column, mean, noise, true in rows:
        print(f"{column:12} {mean:12.2f} {noise:10.2f} {true:10.2f}")
    print()
    print(*found.privacy_.sentences(), sep="\n")
    for line in found.privacy_.per_site:
        print(f"  {line.site}: mu {line.mu:.4f}, epsilon {line.epsilon:.4f}")


if __name__ == "__main__":
    main()
