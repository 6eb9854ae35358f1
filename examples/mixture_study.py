"""A mixture from a study file: three kinds of patients in the tables of three hospitals, found without sharing a row.

Everything is written to a temporary folder.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from zerosum import Study

COLUMNS = ("age", "systolic", "glucose")
KINDS = np.array([[35.0, 118.0, 90.0], [62.0, 128.0, 180.0], [71.0, 162.0, 105.0]])  # made up
SPREAD = np.array([4.0, 7.0, 15.0])
SITES = {"north": 900, "east": 1500, "south": 2400}

STUDY = """
name = "kinds of patients"
algorithm = "mixture"

[parameters]
columns = ["age", "systolic", "glucose"]
lower = [18, 80, 40]
upper = [100, 220, 400]
scaling = "ranges"
n_components = 3

[unit]
kind = "record"

[privacy]
epsilon = 1.0
delta = 1e-5

[coalition]
colluders = 1
"""

SITE = """
[[sites]]
name = "{name}"
data = "{name}.csv"
policy = "{name}.policy.toml"
units = {people}
"""

POLICY = """
population = "patients of {name}"
unit = "record"
data = "synthetic"
epsilon = 2.5
ledger = "{name}.sqlite"
"""


def main() -> None:
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as place:
        folder = Path(place)
        for name, people in SITES.items():
            rows = KINDS[rng.choice(3, people, p=[0.5, 0.3, 0.2])] + SPREAD * rng.normal(size=(people, 3))
            np.savetxt(folder / f"{name}.csv", rows, "%.1f", ",", header=",".join(COLUMNS), comments="")
            (folder / f"{name}.policy.toml").write_text(POLICY.format(name=name))
        sites = "".join(SITE.format(name=name, people=people) for name, people in SITES.items())
        (folder / "study.toml").write_text(STUDY + sites)
        result = Study.load(folder / "study.toml").run()
        found = result.estimate
        print("age, systolic pressure, glucose; share; whether the budget carries it")
        for mean, weight, carried in zip(found["means"], found["weights"], found["carried"], strict=True):
            print("  ", mean.round(0), f"{weight:.2f}", "yes" if carried else "no")
        print(*result.report.sentences(), sep="\n")


if __name__ == "__main__":
    main()
