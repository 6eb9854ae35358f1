"""The exact answers that a site of 0.2 gave outside of its noisy sums, asked for again.

    python benchmarks/oracle.py

Three attacks of November 2026 on a site with private data and automatic consent. The first two use nothing but the
socket of a real `zerosum site run` process. Each line says what the coordinator asked, what it could conclude, and what
the ledger was charged. The attacker knows everybody but one person, as differential privacy allows it to.

The same file runs against 0.2, whose sites declare no schema.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.compute.units import Units
from zerosum.engines.sockets import Sockets
from zerosum.kernel.plan import Plan
from zerosum.kernel.request import PrivatePublication
from zerosum.kernel.statistic import Adjacency
from zerosum.kernel.terms import PlannedRelease
from zerosum.protocol.codec import decode_reply, encode
from zerosum.protocol.messages import Consent, Contribute, Contribution, Dismiss, Propose
from zerosum.protocol.stream import alive
from zerosum.site.ledger import Ledger
from zerosum.site.policy import Policy
from zerosum.site.site import Site
from zerosum.statistics.records import LabelledRecords
from zerosum.study import SiteFile, Study

COMMAND = [sys.executable, "-c", "from zerosum.cli import main; main()"]
PEOPLE = 40
INCOMES = 1 << 17  # candidates for the income of the one person that the attacker does not know
GUESSES = 50
ROSTER = [{"name": "north"}, {"name": "east"}, {"name": "west"}]


def zerosum(*arguments: object) -> None:
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)


@contextmanager
def serving(folder: Path, *entries: str) -> Any:
    """A site's process over the data in its folder; its socket, and its ledger."""
    file = folder / "site.toml"
    text = file.read_text()
    text = text.replace("automatic = false", "automatic = true").replace("minimum_units = 10", "minimum_units = 1")
    file.write_text("\n".join(entries) + "\n" + text)
    site = SiteFile.load(file)
    if hasattr(site, "schema_path"):  # 0.3: the steward declares the data first
        zerosum("site", "schema", "--site", file)
        zerosum("site", "schema", "--confirm", "--site", file)
    process = subprocess.Popen(
        [*COMMAND, "site", "run", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 60
        while not alive(site.socket, 5.0):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("the site does not serve")
            time.sleep(0.05)
        yield site
    finally:
        process.terminate()
        process.wait(30)


def ask(site: SiteFile, plan: Plan) -> str:
    """The answer to a proposal, as one line."""
    engine = Sockets({"north": site.socket}, plan.digest())
    try:
        ((_name, frame),) = engine.exchange({"north": encode(Propose(plan))})
        reply = decode_reply(frame) if frame is not None else None
        list(engine.exchange({"north": encode(Dismiss())}))  # gives its place back: a site has few
    finally:
        engine.close()
    return f"consents, {reply.units} units" if isinstance(reply, Consent) else f"refuses: {getattr(reply, 'error', '')}"


def spent(site: SiteFile) -> int:
    with Ledger.inspect(site.own_policy().ledger_path) as ledger:
        return len(ledger.entries())


def plan_of(site: SiteFile, algorithm: str, parameters: dict[str, Any], **more: Any) -> Plan:
    roster = [{"name": "north", "identity": site.keep_identity().public.hex()}, *ROSTER[1:]]
    study = {"name": "s", "privacy": {"epsilon": 1.0, "delta": 1e-5}, "scheme": {"name": "local"}, "sites": roster}
    unit = {} if "imaging" in more else {"unit": {"kind": "person"}}
    return Study(**study, **unit, algorithm=algorithm, parameters=parameters, **more).plan()


def refusals(folder: Path) -> None:
    """Finding 1: categories left out, and the tokens of missing values."""
    zerosum("site", "init", folder / "north")
    rng = np.random.default_rng(0)
    incomes = rng.choice(INCOMES, PEOPLE, replace=False)
    lines = [f"{income},{'hiv' if at == 7 else 'none'}" for at, income in enumerate(incomes)]
    (folder / "north" / "data.csv").write_text("\n".join(["income,diagnosis", *lines]) + "\n")
    others = set(incomes.tolist()) - {int(incomes[7])}
    with serving(folder / "north") as site:
        shown = [
            ask(site, plan_of(site, "histogram", {"columns": ["diagnosis"], "values": values}))
            for values in (["asthma", "none"], ["asthma", "none", "hiv"])
        ]
        print(f"1  histogram without 'hiv': {shown[0]}; with it: {shown[1]}")
        low, high, proposals, began, answers = 0, INCOMES, 0, time.perf_counter(), set()
        while high - low > 1:
            middle = (low + high) // 2
            tokens = [value for value in range(low, middle) if value not in others]
            parameters = {"columns": ["income"], "lower": [0], "upper": [INCOMES]}
            answer = ask(site, plan_of(site, "mean", parameters, missing_tokens=tokens))
            answers.add(answer)
            low, high = (low, middle) if answer.startswith("refuses") else (middle, high)
            proposals += 1
        seconds = time.perf_counter() - began
        found = "read exactly" if low == incomes[7] and len(answers) > 1 else "not found"
        print(
            f"1  income of one person among {INCOMES} candidates: {found} after {proposals} proposals, {seconds:.1f} s;"
            f" {len(answers)} different answers; ledger entries: {spent(site)}"
        )


def motion(folder: Path) -> None:
    """Finding 2: the largest motion of anybody, from the number of units in consents."""
    import nibabel

    nib: Any = nibabel
    zerosum("site", "init", folder / "north")
    home, rng = folder / "north", np.random.default_rng(1)
    (home / "data").mkdir()
    moved = rng.uniform(0.1, 0.9, size=12)
    for at, most in enumerate(moved):
        image = nib.Nifti1Image(rng.normal(100, 10, size=(3, 3, 3, 20)), np.eye(4))
        image.header.set_zooms((1, 1, 1, 2.0))
        image.header.set_xyzt_units("mm", "sec")
        nib.save(image, home / "data" / f"p{at}.nii.gz")
        (home / "data" / f"p{at}.tsv").write_text("framewise_displacement\n" + f"{float(most)!r}\n" * 20)
    nib.save(nib.Nifti1Image(np.ones((3, 3, 3), np.uint8), np.eye(4)), home / "mask.nii.gz")
    (home / "site.toml").write_text((home / "site.toml").read_text().replace('data = "data.csv"', 'data = "data"'))
    with serving(home, 'files = ["mask.nii.gz"]') as site:
        low, high, answers = 0.0, 1.0, set()
        for _ in range(30):
            middle = (low + high) / 2
            imaging = {"mask": "mask.nii.gz", "scrub_mm": middle}
            answer = ask(site, plan_of(site, "pca", {"n_components": 2, "clip": 10.0}, imaging=imaging, folder=home))
            answers.add(answer)
            everybody = re.search(r"\b12 units", answer) is not None
            low, high = (low, middle) if everybody else (middle, high)
        found = "found" if abs(high - moved.max()) < 1e-6 else "not found"
        print(
            f"2  largest motion of anybody, {moved.max():.6f}: {found} ({high:.6f}) after 30 proposals; "
            f"{len(answers)} different answers; ledger entries: {spent(site)}"
        )


def publication(folder: Path) -> None:
    """Finding 3: a planned publication, asked for with a part of the units, fails by one person's records."""
    features = {"kind": "linear", "lower": [-1.0, -1.0], "upper": [1.0, 1.0]}
    shape = {"columns": 3, "features": features, "classes": 2, "center": np.zeros(2), "projection": np.eye(2)}
    statistic = LabelledRecords(**shape)
    release = PlannedRelease(
        statistic.name,
        statistic.sensitivity(Adjacency.REPLACE_ONE),
        1.0,
        statistic.size,
        statistic.sensitivity(Adjacency.ADD_REMOVE),
        3,
        "publication",
    )
    rng, right, charged, answers = np.random.default_rng(2), 0, 0, set()
    for guess in range(GUESSES):
        policy = Policy(population="p", epsilon=10.0, publications=True, ledger=folder / f"{guess}.sqlite")
        rows = rng.uniform(-1, 1, size=(PEOPLE, 3))
        draws = Units.from_rows(rows).own_draws()
        rows = rows[draws > 0.05][:30]  # those whom the attacker knows: none of them is held out
        stays, goes = (rng.uniform(-1, 1, size=(4000, 3)) for _ in range(2))
        stays = stays[Units.from_rows(stays).own_draws() > 0.05][0]
        goes = goes[Units.from_rows(goes).own_draws() < 0.05][0]
        coin = bool(rng.integers(2))
        site = Site("north", Units.from_rows(np.vstack([rows, goes if coin else stays])), policy)
        terms = plan_of_sites(site)
        plan = Plan.of(terms, f"s{guess}", "test", (release,))
        site.handle(Propose(plan))
        answer = _ask_part(site, LabelledRecords(**shape, part="fitted", hold_out=0.05))
        answers.add(answer)
        right += (answer == "fails") == coin
        if policy.ledger_path.exists():
            with policy.open_ledger() as ledger:
                charged += len(ledger.entries())
        site.close()
    print(
        f"3  which of two records somebody has: {right} of {GUESSES} guesses right (epsilon 1 allows 55 %); "
        f"{len(answers)} different answers ({', '.join(sorted(answers))}); ledger entries: {charged}"
    )


def plan_of_sites(site: Site) -> Any:
    from zerosum.kernel.schemes import Scheme
    from zerosum.kernel.terms import PlannedSite, Terms
    from zerosum.kernel.view import Coalition

    sites = tuple(PlannedSite(name, len(site.units)) for name in ("north", "east", "west"))
    terms = Terms(sites=sites, epsilon=1.0, delta=1e-5, scheme=Scheme("local"), coalition=Coalition(1))
    return replace(terms, sites=(replace(sites[0], identity=site.identity.public.hex()), *sites[1:]))


def _ask_part(site: Site, statistic: LabelledRecords) -> str:
    try:
        reply = site.handle(Contribute(0, 0, PrivatePublication(statistic)))
        return "answers" if isinstance(reply, Contribution) else "something else"
    except ValueError as error:  # a refusal: by the request alone
        return f"refuses: {error}"
    except IndexError:
        return "fails"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for attack in (refusals, motion, publication):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ZEROSUM_STATE"] = str(Path(folder) / "state")
            attack(Path(folder))
