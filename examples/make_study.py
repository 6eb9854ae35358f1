"""A whole study from files: CSV tables, a policy for each site, a study file, the plan, the run, the ledgers.

Everything is written to a temporary folder. The command line does the same with

    zerosum plan study.toml
    zerosum run study.toml --out result
    zerosum ledger show north.sqlite
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from zerosum import Study, ZerosumError
from zerosum.report.record import privacy_report
from zerosum.site.ledger import Ledger

GROUPS = np.array([[35.0, 118.0], [62.0, 128.0], [71.0, 162.0]])  # age and systolic pressure of three made-up groups
SITES = {"north": 300, "east": 500, "south": 900}

STUDY = """
name = "three groups of patients"
algorithm = "k-means"

[parameters]
columns = ["age", "systolic"]
lower = [18, 80]
upper = [100, 220]
n_clusters = 3
rounds = 4

[unit]
kind = "person"
column = "patient"

[privacy]
epsilon = 2.0
delta = 1e-5

[coalition]
colluders = 1
"""

SITE = """
[[sites]]
name = "{name}"
data = "{name}.csv"
policy = "{name}.policy.toml"
"""

POLICY = """
population = "patients of {name}"
data = "synthetic"
epsilon = 2.5
ledger = "{name}.sqlite"
"""


def write_site(folder: Path, name: str, people: int, seed: int) -> None:
    """A table of one to three visits a patient, and the site's own policy."""
    rng = np.random.default_rng(seed)
    with (folder / f"{name}.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["patient", "age", "systolic"])
        for patient in range(people):
            centre = rng.normal(GROUPS[rng.integers(3)], [4.0, 5.0])
            for _ in range(rng.integers(1, 4)):
                age, systolic = centre + rng.normal(0, [0.5, 4.0])
                table.writerow([f"{name}-{patient}", f"{age:.1f}", f"{systolic:.1f}"])
    (folder / f"{name}.policy.toml").write_text(POLICY.format(name=name))


def main() -> None:
    with TemporaryDirectory() as place:
        folder = Path(place)
        for seed, (name, people) in enumerate(SITES.items()):
            write_site(folder, name, people, seed)
        (folder / "study.toml").write_text(STUDY + "".join(SITE.format(name=name) for name in SITES))

        study = Study.load(folder / "study.toml")
        plan = privacy_report(study.plan())  # no data has been read so far
        print(f"Planned, {plan.rounds} rounds of {plan.exchanges} exchanges:")
        for line in plan.releases:
            print(f"  {line.statistic}, {line.size} numbers: noise of the sum {line.noise_std:.1f}, mu {line.mu:.3f}")
        print(f"  whole study: epsilon {plan.worst_epsilon:.3f} at delta {plan.delta:g}, for every site\n")

        result = study.run()
        result.write(folder / "result")
        record = json.loads((folder / "result" / "result.json").read_text())
        print("Centres found (age, systolic pressure; people):")
        for centre, count in zip(record["estimate"]["centers"], record["estimate"]["counts"], strict=True):
            print(f"  {centre[0]:5.1f}  {centre[1]:6.1f}   {count:6.0f}")
        print(f"Centres of the made-up groups: {GROUPS.tolist()}\n")

        print(*result.report.sentences(), sep="\n")
        with Ledger.inspect(folder / "north.sqlite") as ledger:
            spent = ledger.epsilon(1e-5)
            print(f"The ledger of 'north' holds {ledger.verify()} entries: epsilon {spent:.3f} of its cap of 2.5.")
        try:
            study.run()
        except ZerosumError as error:
            print(f"Running again is spending again: {error}")


if __name__ == "__main__":
    main()
