"""Results and privacy reports: frozen records, text, JSON, and atomic writing to disk.

`privacy_report` computes the guarantee of a plan before or after its run: both have the same costs, since a plan fixes
the noise of every release. `Result` holds an estimate with its plan and is written as three files: result.json for
readers, estimate.npz with the exact numbers, plan.json.

Files appear whole or not at all: they are written under another name in the same folder, synced, and renamed. A power
failure in between leaves the former state and a hidden file.
"""

from __future__ import annotations

import io
import json
import math
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from zerosum import html
from zerosum.disk import make_folder, open_new, sync_folder
from zerosum.errors import BadInput
from zerosum.kernel import laplace, published
from zerosum.kernel.amounts import format_epsilon
from zerosum.kernel.names import counted
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.question import Question
from zerosum.kernel.schemes import SCHEMES, Combine
from zerosum.report.json_text import finite, readable
from zerosum.version import VERSION

if TYPE_CHECKING:
    from zerosum.report.tidy import TidyTable

_MOST_VALUES = 100  # largest number of values of an estimate shown in a notebook


@dataclass(frozen=True)
class SiteLine:
    """Privacy cost of a study for the units of one site.

    `mu` and `epsilon` are exact. The `published_` values are the papers' claims for the same noise. The `helper_`
    values hold against a coordinator that uses the noise it dealt. `best_guess` is the largest probability of a correct
    guess between two equally likely data sets that differ in one unit.
    """

    site: str
    mu: float
    epsilon: float
    best_guess: float
    published_mu: float | None
    published_epsilon: float | None
    helper_mu: float | None = None
    helper_epsilon: float | None = None


@dataclass(frozen=True)
class ReleaseLine:
    """One release.

    Attributes
    ----------
    statistic : str
        Name of the statistic.
    size : int
        Number of values; of a publication, per unit.
    sensitivity : float
        L2 sensitivity; L1 for Laplace noise.
    share : float
        Share of mu squared of the study.
    noise_std : float
        Standard deviation of the noise of each released number.
    mu : float
        Cost at the site with the largest cost; for Laplace noise its pure epsilon.
    kind : str
        "sum" or "publication".
    rate, steps : float, int
        Sampling rate and number of steps of a subsampled phase.
    noise : str
        Noise law: "gaussian" or "laplace".
    """

    statistic: str
    size: int
    sensitivity: float
    share: float
    noise_std: float
    mu: float
    kind: str = "sum"
    rate: float | None = None  # sampling rate of a phase of subsampled sums
    steps: int = 1
    noise: str = "gaussian"


@dataclass(frozen=True)
class PrivacyReport:
    """Privacy guarantee of a study: unit, adversary, cost by site, releases.

    Attributes
    ----------
    epsilon, delta : float
        Requested budget. The exact epsilon of each site is in `per_site`.
    scheme : dict
        Name and parameters of the noise scheme.
    colluders, dropouts : int
        Sites that may collude with the coordinator, and that may be lost in a round.
    private : bool
        False for runs without noise or with a seed.
    rounds, exchanges : int
        Rounds, and message exchanges per round.
    bytes_per_site : int
        Bytes to and from each site.
    extra_delta : float
        Part of delta that pays for finite arithmetic.
    plan_digest, proposal_digest, public_digest : str
        Digests of the plan with keys, without keys, and of the public question.
    notes : tuple of str
        Limitations of the guarantee.
    attempts : int
        Rounds that may be repeated.
    """

    study: str
    algorithm: str
    unit: str
    adjacency: str
    epsilon: float
    delta: float
    scheme: dict[str, Any]
    calibration: str
    sites: int
    colluders: int
    dropouts: int
    results_to_sites: bool
    private: bool
    per_site: tuple[SiteLine, ...]
    releases: tuple[ReleaseLine, ...]
    rounds: int
    exchanges: int
    bytes_per_site: int
    extra_delta: float
    plan_digest: str
    proposal_digest: str
    public_digest: str
    question: Question
    notes: tuple[str, ...]
    attempts: int = 0

    @property
    def worst_epsilon(self) -> float:
        """Largest epsilon of all sites."""
        return max(line.epsilon for line in self.per_site)

    @property
    def best_guess(self) -> float:
        """Largest guessing probability of all sites."""
        return max(line.best_guess for line in self.per_site)

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form."""
        record: dict[str, Any] = finite(asdict(self))
        return record

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        # The short form; report.html and `zerosum plan` have all columns.
        lines = [(line.site, line.mu, line.epsilon) for line in self.per_site]
        table = html.table(
            ("site", "mu", f"epsilon at delta {self.delta:g}"), lines, f"{self.study} ({self.algorithm})"
        )
        return str(table + html.paragraphs(self.sentences()))

    def sentences(self) -> list[str]:
        """The guarantee in sentences, followed by the notes."""
        change = "replaced by another" if self.adjacency == "replace-one" else "added or removed"
        if not self.private:
            return ["This run protects no person: " + "; ".join(self.notes) + "."]
        facts = SCHEMES[self.scheme["name"]]
        # Where the coordinator sees the data it is trusted, and the adversary is a reader of the result.
        who = "an outsider" if facts.sees_data else adversary(self.colluders)
        if facts.deals_noise:
            who = f"{who}, without the noise that it dealt itself,"
        lost = f"{counted(self.dropouts, 'further site')} {'is' if self.dropouts == 1 else 'are'} lost"
        loss = f", even if {lost}," if self.dropouts else ""
        return [
            f"If one {self.unit} of one site is {change}, the view of the whole study by {who}{loss} changes by no "
            f"more than epsilon {format_epsilon(self.worst_epsilon)} at delta {self.delta:g}.",
            *(note[0].upper() + note[1:] + "." for note in self.notes),
        ]


def adversary(colluders: int) -> str:
    """The adversary, for a sentence."""
    if colluders == 0:
        return "the coordinator"
    return f"the coordinator and any {'one other site' if colluders == 1 else f'{colluders} other sites'}"


def privacy_report(plan: Plan) -> PrivacyReport:
    """Privacy report of a plan. It applies to every run of the plan.

    Parameters
    ----------
    plan : Plan
        The plan, with or without pinned identities.

    Returns
    -------
    PrivacyReport
        Exact cost by site, releases, digests and notes.
    """
    # Each array has one entry for each site. `claimed` is None for schemes without a published theorem.
    mus, claimed = plan.site_mus(), plan.claimed_mus()
    # Only schemes with dealt noise have a second adversary.
    helper = plan.coordinator_mus() if plan.scheme.facts.deals_noise else None
    per_site = []
    for s, site in enumerate(plan.sites):
        mu = float(mus[s])
        theirs = None if claimed is None else float(claimed[s])
        per_site.append(
            SiteLine(
                site=site.name,
                mu=mu,
                epsilon=plan.site_epsilon(s),
                best_guess=plan.best_guess(s),
                published_mu=theirs,
                published_epsilon=None
                if theirs is None
                else published.claimed_epsilon(plan.scheme.name, theirs**2, plan.delta),
                helper_mu=None if helper is None else float(helper[s]),
                helper_epsilon=None if helper is None else plan.coordinator_epsilon(s),
            )
        )
    releases = tuple(
        ReleaseLine(
            release.statistic,
            release.size,
            release.sensitivity,
            release.share,
            _noise_std(plan, r),
            # A phase of sub-sampled steps has equal noise in each, so its first round stands for all.
            float(np.max(plan.mus(plan.first_round(r)))),
            release.kind,
            None if release.sampling is None else release.sampling.rate,
            release.steps,
            release.noise,
        )
        for r, release in enumerate(plan.releases)
    )
    return PrivacyReport(
        study=plan.study,
        algorithm=plan.algorithm,
        unit=plan.unit,
        adjacency=plan.adjacency.value,
        epsilon=plan.epsilon,
        delta=plan.delta,
        scheme=plan.scheme.as_record(),
        calibration=plan.calibration,
        sites=len(plan.sites),
        colluders=plan.coalition.colluders,
        dropouts=plan.coalition.dropouts,
        results_to_sites=plan.results_to_sites,
        private=plan.private,
        per_site=tuple(per_site),
        releases=releases,
        rounds=plan.rounds,
        exchanges=plan.exchanges,
        bytes_per_site=plan.bytes_per_site,
        extra_delta=plan.extra_delta,
        plan_digest=plan.digest(),
        proposal_digest=plan.proposal_digest,
        public_digest=plan.public_digest,
        question=plan.question,
        notes=tuple(_notes(plan)),
        attempts=plan.attempts,
    )


def _notes(plan: Plan) -> list[str]:
    """Notes on limitations: no noise, seed, trusted coordinator, calibration, publications, attempts, weights."""
    notes = []
    if not plan.scheme.facts.noisy:
        notes.append("no noise was added")
    elif not all(plan.gridded(release) for release in plan.releases):
        notes.append("the noise is a double-precision normal, for comparison; docs/limitations.md describes its limits")
    if plan.seed is not None:
        notes.append("the noise came from a seed, so anyone who knows the seed can remove it")
    if plan.scheme.facts.noisy and plan.scheme.facts.sees_data:
        notes.append("the coordinator sees the data and is trusted with them")
    if plan.calibration == "published":
        notes.append("the noise follows the papers' formula, so the exact epsilon may exceed the one asked for")
        if steps := max((release.steps for release in plan.releases), default=1) - 1:
            notes.append(
                f"the papers' formula counts one iteration: the epsilon asked for is that of one of {steps + 1} steps, "
                "and the exact epsilon of each site is that of all of them"
            )
    if plan.scheme.facts.deals_noise:
        worst = max(plan.coordinator_epsilon(s) for s in range(len(plan.sites)))
        notes.append(
            "the coordinator deals the noise that cancels and is trusted not to use it: with what it dealt, it alone "
            f"could reach epsilon {format_epsilon(worst)} at delta {plan.delta:g}"
        )
    notes += [_laplace_note(plan, r) for r, release in enumerate(plan.releases) if release.laplace]
    notes += [_publication_note(plan, r) for r, release in enumerate(plan.releases) if release.kind == "publication"]
    if plan.attempts:
        some = "one round" if plan.attempts == 1 else f"{plan.attempts} rounds"
        notes.append(f"{some} may be tried once more, which is counted here whether it is used or not")
    if plan.absences:
        some = "one site" if plan.absences == 1 else f"{plan.absences} sites"
        notes.append(
            f"{some} may be left out if lost before anything is released; the others then bear the noise, for no more "
            "than epsilon each"
        )
    if plan.parents:
        tree = plan.tree
        notes.append(
            f"messages travel along a tree of {tree.levels} levels, {tree}; an inner node carries the messages of its "
            f"branch, and if it is lost so is the branch, up to {counted(tree.worst_loss, 'site')}; the plan tolerates "
            f"{counted(plan.coalition.dropouts, 'loss', 'losses') if plan.coalition.dropouts else 'no loss'}"
        )
    if plan.scheme.combine is not Combine.SUMS or any(site.scale != 1 for site in plan.sites):
        notes.append("sites weigh differently: a mean is a weighted mean over units")
    return notes


def _noise_std(plan: Plan, release: int) -> float:
    """Standard deviation of the noise of each number of a release: of a sum, or of a published row."""
    law = plan.law(plan.first_round(release))
    if plan.releases[release].kind == "publication":
        # A site's noise is in the units of its message c_s f_s; divided by c_s it is that of the record f_s itself.
        return float(np.max(law.own / law.factor))
    return law.noise_std


def _laplace_note(plan: Plan, release: int) -> str:
    """Note on a release with Laplace noise: its pure epsilon, and intervals, which are wider than those of normal noise
    of the same standard deviation."""
    law, planned = plan.law(plan.first_round(release)), plan.releases[release]
    pure = float(np.max(plan.mus(plan.first_round(release))))
    # Intervals in standard deviations are widest where all sites that may be lost are lost.
    left = 1.0 if plan.scheme.facts.sees_data else 1 - plan.coalition.dropouts / len(plan.sites)
    shares = law.shares * left
    return (
        f"the noise of {counted(planned.size, 'number')} of {planned.statistic!r} is Laplace noise, drawn in shares: "
        f"this release alone has epsilon {format_epsilon(pure)} with delta 0, but for the error of the sampler; 95 % "
        f"of its errors lie within {laplace.interval_factor(shares):.2f} standard deviations, and 90 % within "
        f"{laplace.interval_factor(shares, 0.9):.2f}"
    )


def _publication_note(plan: Plan, release: int) -> str:
    """Note on a publication of records: its noise, and the noise of a private sum at the same cost."""
    planned, noise = plan.releases[release], _noise_std(plan, release)
    what = f"{counted(planned.size, 'number')} of {planned.statistic!r}"
    of = f"record of every {plan.unit} is published, {what}, and stays published"
    if not plan.scheme.facts.noisy:
        return f"a {of}"
    # The number of units is public in every plan with a publication.
    units = sum(site.units or 1 for site in plan.sites)
    if plan.calibration == "published":
        average = noise / math.sqrt(units)
        return (
            f"a noisy {of}: each number has noise of {noise:.3g}, so that an average over all {units} has {average:.2g}"
        )
    # Noise of one sum of all units at the same share of the budget.
    # `noise_of_everything` is the noise of a sum of sensitivity 1 that has the whole budget. A release with the share s
    # of mu squared has 1/sqrt(s) times the noise.
    summed = plan.noise_of_everything * planned.sensitivity / math.sqrt(planned.share)
    return (
        f"a noisy {of}: each number has noise of {noise:.3g}, so that an average over all {units} has "
        f"{noise / math.sqrt(units):.2g}; through the private sum, at the same cost and with no record out, it would "
        f"have {summed / units:.2g}"
    )


@dataclass(frozen=True, eq=False)
class Result:
    """Result of one study.

    Attributes
    ----------
    estimate : mapping of str to Quantity
        Estimated quantities by name.
    plan : Plan
        The plan that was run.
    participants : tuple of tuple of str
        Names of the sites in each round; empty for a round that was lost.
    versions : mapping of str to str
        Versions of Zerosum and of numerical libraries.
    kept : str
        Archive id (`zerosum results`).
    warnings : tuple of str
        Warnings derived from the releases (`zerosum.report.warnings`), and losses of sites.
    losses : tuple of mapping
        For each fault of a site that counted as lost `site`, `round`, `attempt`, `why` and `evidence`.
    """

    estimate: Mapping[str, Quantity]
    plan: Plan
    participants: tuple[tuple[str, ...], ...]
    versions: Mapping[str, str]
    kept: str = ""  # archive id (`zerosum results`); empty if nothing was spent
    warnings: tuple[str, ...] = ()  # warnings derived from the releases, and losses of sites
    losses: tuple[Mapping[str, Any], ...] = ()  # faults of sites (`zerosum.coordinator.faults`)

    @cached_property
    def report(self) -> PrivacyReport:
        """Privacy report of the plan."""
        return privacy_report(self.plan)

    def _repr_html_(self) -> str:
        """HTML for notebooks: estimates, warnings and guarantee."""
        parts = []
        for name, quantity in self.estimate.items():
            if quantity.value.ndim <= 1 and quantity.value.size <= _MOST_VALUES:
                places = quantity.axes[0] if quantity.axes else None
                labels = places.labels if places else tuple(str(at + 1) for at in range(quantity.value.size))
                # One entry of noise for each value; the table leaves None empty.
                std = [None] * quantity.value.size if quantity.std is None else np.ravel(quantity.std).tolist()
                units = (places.units if places else ()) or ("",) * len(labels)
                lines = zip(labels, np.ravel(quantity.value).tolist(), std, units, strict=True)
                parts.append(html.table((places.name if places else "", name, "noise", "measured in"), lines))
            else:
                parts.append(html.paragraphs([f"{name}: {' x '.join(map(str, quantity.shape))} numbers"]))
        archive_note = [f"kept as {self.kept}"] if self.kept else []
        sentences = [*(f"warning: {each}" for each in self.warnings), *self.report.sentences(), *archive_note]
        parts.append(html.paragraphs([*sentences, f"public digest {self.report.public_digest}"]))
        return "".join(parts)

    def as_record(self) -> dict[str, Any]:
        """JSON-compatible form, the content of result.json."""
        record: dict[str, Any] = finite(
            {
                "study": self.report.study,
                "algorithm": self.report.algorithm,
                "estimate": {key: quantity.tolist() for key, quantity in self.estimate.items()},
                "quantities": {key: quantity.as_record() for key, quantity in self.estimate.items()},
                "privacy": self.report.as_record(),
                **({"effects": effects} if (effects := self._effects()) else {}),
                "participants": [list(names) for names in self.participants],
                "versions": dict(self.versions),
                "kept": self.kept,
                "warnings": list(self.warnings),
                "losses": [dict(each) for each in self.losses],
            }
        )
        return record

    def _effects(self) -> dict[str, Any]:
        """Odds, rate or hazard ratios of a regression for result.json: their name and rows; empty for other results."""
        from zerosum.report.coefficients import CoefficientTable  # loads the document model

        if "pooled_std" not in self.estimate:
            return {}
        table = CoefficientTable.of(self.estimate, self.plan.algorithm)
        return {"measure": table.ratio, "rows": table.ratios().as_record()} if table.ratio else {}

    def tables(self) -> dict[str, TidyTable]:
        """Tidy tables of the result by name, with the columns of R's broom, for data frames and files.

        Returns
        -------
        dict of str to TidyTable
            See `zerosum.report.tidy`.
        """
        from zerosum.report.export import tidy

        return tidy(self)

    def to_frame(self, name: str = "", library: Literal["pandas", "polars"] | None = None) -> Any:
        """One tidy table as a data frame.

        Parameters
        ----------
        name : str
            Name of the table, one of `tables()`; by default the first one.
        library : {"pandas", "polars"}, optional
            By default pandas if it is installed, else polars.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            With `estimate`, `std_error`, `conf_low`, `conf_high` and `kind` for each term; Table 1 has texts.

        Raises
        ------
        BadParameter
            If there is no table of this name.
        BadInput
            If no library for data frames is installed.
        """
        from zerosum.report.tidy import chosen_table

        return chosen_table(self.tables(), name).to_frame(library)

    def write(self, folder: Path, *, private: bool = False) -> None:
        """Write result.json, estimate.npz and plan.json to a new folder, atomically and synced. The folder has
        mode 0700, and its files the umask's, or 0600 with `private`."""
        values = {key: quantity.value for key, quantity in self.estimate.items()}
        plan = {"plan.json": self.plan.to_json()}
        self.place(folder, {"result.json": self.as_record()}, {"estimate.npz": values}, plan, private=private)

    @classmethod
    def read(cls, folder: Path) -> Result:
        """Read a written result.

        Raises
        ------
        BadInput
            If a file is missing or damaged.
        """
        estimate, plan = read_estimate(folder), read_plan(folder / "plan.json")
        try:
            record = json.loads((folder / "result.json").read_bytes())
            rounds = tuple(tuple(names) for names in record["participants"])
            losses = tuple(record.get("losses", ()))  # results of earlier versions have none
            return cls(estimate, plan, rounds, record["versions"], record["kept"], tuple(record["warnings"]), losses)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise BadInput(f"{folder} holds no result that can be read: {error}") from None

    @staticmethod
    def place(
        folder: Path,
        records: Mapping[str, Any],
        arrays: Mapping[str, Mapping[str, Any]],
        files: Mapping[str, bytes] | None = None,
        *,
        private: bool = False,
    ) -> None:
        """Create a folder with these files, atomically and synced.

        Parameters
        ----------
        folder : Path
            The new folder; an empty one may exist.
        records : mapping
            File names to records, written as JSON.
        arrays : mapping
            File names to named arrays, written as .npz.
        files : mapping, optional
            File names to bytes.
        private : bool
            Mode 0600 of the files instead of the umask's. The folder has mode 0700 in any case.
        """
        check_target(folder)
        # All contents are computed before anything is written.
        written = {name: (readable(record) + "\n").encode() for name, record in records.items()}
        for name, values in arrays.items():
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **values)
            written[name] = buffer.getvalue()
        try:
            _make_parent(folder, private=private)
            partial = _beside(folder)
            # A result is for those whom its owner gives it to: other users of the machine cannot enter the folder.
            partial.mkdir(mode=0o700)
            try:
                for name, content in (written | dict(files or {})).items():
                    with open_new(partial / name, private=private) as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                keep_folder(partial)
                # An empty folder is replaced, since a rename onto an existing folder is not portable.
                if folder.exists():
                    folder.rmdir()
                partial.replace(folder)
                keep_folder(folder.parent)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        except OSError as error:
            raise BadInput(f"the result could not be written to {folder}: {error.strerror}") from error


def read_estimate(folder: Path) -> dict[str, Quantity]:
    """Read the estimate of a written result."""
    try:
        known = json.loads((folder / "result.json").read_bytes())["quantities"]
        with np.load(folder / "estimate.npz", allow_pickle=False) as values:
            return {name: Quantity.of_record(values[name], record) for name, record in known.items()}
    except (OSError, ValueError, LookupError) as error:
        raise BadInput(f"{folder} holds no result that can be read: {error}") from None


def write_whole(path: Path, text: bytes, *, private: bool = False) -> None:
    """Write a new file atomically. Its mode follows the umask, or is 0600 (`private`)."""
    if path.exists():
        raise BadInput(f"{path} exists already; choose another place")
    try:
        _make_parent(path, private=private)
        fresh = _beside(path)
        try:
            with open_new(fresh, private=private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            # A rename within a folder is atomic.
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"{path} could not be written: {error.strerror}") from error


def _beside(path: Path) -> Path:
    """An unused name in the same folder. Not from `tempfile`, whose modes do not follow the umask."""
    return path.with_name(f".{path.name[:64]}-{secrets.token_hex(8)}")


def _make_parent(path: Path, *, private: bool) -> None:
    """Create the parent folder."""
    if private:
        make_folder(path.parent)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)


def read_plan(path: Path) -> Plan:
    """Read a plan file. Raises `BadInput`."""
    try:
        return Plan.from_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"the plan {path} cannot be read: {error.strerror}") from None


def make_room(path: Path, size: int) -> None:
    """Reserve `size` bytes in a file of mode 0600. Raises OSError if the disk has no room."""
    path.unlink(missing_ok=True)
    with open_new(path, private=True) as file:
        # posix_fallocate reserves blocks; a sparse file would not.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())


def keep_folder(folder: Path) -> None:
    """Sync a folder, so that new names in it survive a crash. Skipped where this user may not read it."""
    with suppress(PermissionError):
        sync_folder(folder)


def try_target(folder: Path, size: int) -> None:
    """Raise `BadInput` if a result cannot be written to a folder. Tested by writing, before anything is spent.

    Parameters
    ----------
    folder : Path
        Folder of the result; created for the test and removed again.
    size : int
        Bytes needed.
    """
    check_target(folder)
    parents = [folder, *folder.absolute().parents]
    # Folders that are created for the test are removed again.
    made = [parent for parent in parents if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            make_room(folder / ".room", size)
        finally:
            (folder / ".room").unlink(missing_ok=True)
            for parent in made:
                parent.rmdir()
    except OSError as error:
        raise BadInput(
            f"a result could not be written to {folder} ({error.strerror}), so nothing was asked and nothing spent: "
            "choose another place, or make room"
        ) from error


def check_target(folder: Path) -> None:
    """Raise `BadInput` if a folder is not empty or cannot be created, before anything is spent."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder} exists already and is not an empty folder; choose another place for the result")
    # The folder may not exist yet; the nearest existing parent decides.
    nearest = next(parent for parent in folder.absolute().parents if parent.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise BadInput(f"{nearest} cannot be written to; choose another place for the result")


def versions() -> dict[str, str]:
    """Versions of Zerosum and of the libraries that determine noise and numerical results."""
    return {"zerosum": VERSION} | {name: _installed_version(name) for name in ("numpy", "scipy", "cryptography")}


@cache
def _installed_version(name: str) -> str:
    """The version of a library. Reading its metadata takes as long as a small study, hence the cache."""
    return version(name)
