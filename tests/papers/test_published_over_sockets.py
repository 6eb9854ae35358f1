"""Published programs between processes: three unequal sites, each a process of its own, and their study files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.deployment import Deployment, declare
from zerosum.cli.site import site_init
from zerosum.study.coordinating import Settings, begin, coordinate

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "papers").glob("*.toml"))
PEOPLE = {"north": 40, "east": 65, "south": 21}
ROWS = 3  # of each person
FEATURES = ("x1", "x2", "x3", "x4")
VITALS = ("age", "systolic", "bmi", "glucose")
WORDS = ("pain", "fever", "cough", "fall", "fracture", "cast")


class UnequalSites(Deployment):
    """Sites whose table has the columns of every study file of the papers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.identities: dict[str, str] = {}
        rng = np.random.default_rng(11)
        for name, people in PEOPLE.items():
            home = folder / name
            site_init(home, json_=True)
            text = (home / "site.toml").read_text()
            text = re.sub("automatic = false", "automatic = true", text)
            text = re.sub('(?m)^data = "private"', 'data = "synthetic"', text)
            text = re.sub("(?m)^epsilon = 10.0", "epsilon = 1000.0\ntrusted_coordinator = true", text)
            text = text.replace('# unit_column = "patient"', 'unit_column = "patient"')
            (home / "site.toml").write_text(text)
            n = ROWS * people
            vitals = np.array([59, 150, 35, 170]) + rng.laplace(size=(n, 4)) * [10, 15, 5, 30]
            words = rng.poisson(2.0, (n, len(WORDS)))
            table = np.column_stack([rng.laplace(size=(n, 4)), vitals, vitals[:, 0] > 59, words])
            heading = ",".join(("patient", *FEATURES, *VITALS, "smoker", *WORDS))
            lines = [f"p{at // ROWS}," + ",".join(f"{cell:.4f}" for cell in row) for at, row in enumerate(table)]
            (home / "data.csv").write_text("\n".join([heading, *lines]) + "\n")
            site = self.site(name)
            self.identities[name] = site.keep_identity().public.hex()
            declare(site)

    def public_part(self, example: Path) -> Path:
        """A study file of the papers with the sites' public facts in place of their data."""
        text = example.read_text()
        text = text[: text.index("[[sites]]")].replace('\ncolumn = "patient"', "")
        for name, people in PEOPLE.items():
            text += f'\n[[sites]]\nname = "{name}"\nunits = {people}\nidentity = "{self.identities[name]}"\n'
        path = self.folder / example.name
        path.write_text(text)
        return path


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnequalSites]:
    made = UnequalSites(tmp_path_factory.mktemp("s"))
    try:
        made.start(*PEOPLE)
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_published_program_over_sockets_gives_estimate_and_charges_every_round(
    example: Path, sites: UnequalSites
) -> None:
    state, out = sites.folder / example.stem, sites.folder / f"{example.stem}-out"
    sockets = {name: sites.site(name).socket for name in PEOPLE}
    before = {name: len(sites.spent(name)) for name in PEOPLE}
    begin(Settings(study=sites.public_part(example), out=out, sites=sockets, seconds=60.0, wait=60.0), state)
    result = coordinate(state, lambda names: None)
    assert result.plan.epsilon == 2.0
    assert all(np.all(np.isfinite(np.asarray(each))) for each in result.estimate.values())
    assert {name: len(sites.spent(name)) - before[name] for name in PEOPLE} == dict.fromkeys(PEOPLE, result.plan.rounds)
