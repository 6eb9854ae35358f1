"""Study file model: question, sites, privacy, data preparation; loads, plans, runs and writes a study.

docs/study.md describes every entry.
"""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from zerosum import algorithms
from zerosum.algorithms import Algorithm, Estimate
from zerosum.algorithms.guided_ica.public import PublicPeople
from zerosum.arrays import Floats
from zerosum.compute.devices import check_device
from zerosum.compute.units import Units
from zerosum.data.bases import cosines, load_basis
from zerosum.data.design import Design
from zerosum.data.documents import load_documents, load_vocabulary
from zerosum.data.imaging import Masker, OnScan, load_images
from zerosum.data.imputation import Imputation, ImputationModel
from zerosum.data.omop import Definitions
from zerosum.data.sources import defined_columns
from zerosum.data.tables import CellFault, load_units, raise_faults
from zerosum.data.templates import load_templates
from zerosum.errors import BadData, BadStudy, DataWarning, Refused, ZerosumError
from zerosum.kernel.plan import Plan
from zerosum.kernel.quantity import PICTURES
from zerosum.kernel.schemes import Scheme
from zerosum.kernel.terms import PlannedSite, Terms
from zerosum.protocol.progress import Observer, Progress, nobody
from zerosum.report.brain_pictures import best_matches, draw_brains
from zerosum.report.build import write_report
from zerosum.report.maps import draw_maps, write_maps, write_sidecars
from zerosum.report.record import Result
from zerosum.report.signature import check_coordinator
from zerosum.secagg.keys import Identity
from zerosum.site.budget import check_budget, refusals
from zerosum.site.site import Site
from zerosum.study.checkpoint import Checkpoint
from zerosum.study.entries import (
    CoalitionTable,
    ImagingTable,
    PermitTable,
    PrivacyTable,
    RosterTable,
    SchemeTable,
    Table,
    TreeTable,
    UnitTable,
)
from zerosum.study.outlook import Outlook, outlook_of
from zerosum.study.planning import Provenance, check_measures, coalition_of, make_plan, pin, roster_with_identities
from zerosum.study.running import execute_in_process
from zerosum.study.site_data import site_tokens
from zerosum.study.site_file import SiteFile, digest, split_private_entries

RENAMED = {"privacy.seed": "privacy.random_state"}  # names of entries in version 0.1, to the present names


_DESIGN_PARAMETERS = {
    *("columns", "lower", "upper", "center", "scale", "missing"),
    *("offset", "weight", "draw", "hold_out", "measured_in", "entry", "stratum", "strata", "events"),
}  # Parameters of a regression that follow from [design] and must not be given beside it.


class Study(Table):
    """A study file. All entries are public, except `site_files`.

    A file for rehearsals may contain the private part too: then each of its sites has entries such as `data` and
    `policy`, which are moved to `site_files`.
    """

    name: str = Field(min_length=1)
    """The study's name; each plan adds a random suffix, since running again is a new study."""
    algorithm: str
    """Which program runs, one of those whose parameters are listed below."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """The algorithm's public parameters."""
    unit: UnitTable
    """What is protected."""
    privacy: PrivacyTable
    """What it may cost."""
    coalition: CoalitionTable = CoalitionTable()
    """Against whom, and how many sites may be lost."""
    scheme: SchemeTable = SchemeTable()
    """How the sites' noise combines."""
    tree: TreeTable | None = None
    """Along which sites messages travel."""
    purpose: str = ""
    """What the study is for, in words that a steward and an ethics board can judge; it travels in the plan."""
    permit: PermitTable | None = None
    """The approval of the study and who answers for it."""
    results_to_sites: bool = True
    """Whether sites learn results; if so, `colluders` must be at least 1."""
    coordinator: str | None = None
    """The public half of the coordinator's key, which `zerosum coordinator init` prints: the key that signs reports."""
    basis: Path | None = None
    """A public basis, for algorithms with such a parameter: an `.npy` array with a row for each column, or with
    `[imaging]` a 4D NIfTI file of maps on the study's grid."""
    templates: Path | None = None
    """Public template maps of [guided ICA](guided-ica.md), or the networks of [connectivity](connectivity.md): an
    `.npy` array with a row for each map, or with `[imaging]` a 4D NIfTI file of maps or a 3D one of regions."""
    public_people: Path | None = None
    """Recordings of public people for [guided ICA](guided-ica.md): a data file as of a site, or with `[imaging]` a
    folder of images. They must not be people of the study."""
    map_names: Path | None = None
    """A public atlas on the study's grid, 4D maps or 3D regions, whose best match names each map in pictures. Not part
    of the question."""
    vocabulary: Path | None = None
    """A file of public words, one per line: then sites hold documents, and columns are counts of these words."""
    omop: Path | None = None
    """The public file that defines cohort and columns of [OMOP](omop.md) sites. A plan states the definitions of the
    columns that it reads, and sites with others refuse it."""
    missing_tokens: dict[str, tuple[str | float, ...]] | tuple[str | float, ...] = ()
    """Tokens of missing values in files, beside empty cells and NaN, for all columns or by column:
    `["NA", "?"]`, `{ chol = [0] }`."""
    measured_in: dict[str, str] = Field(default_factory=dict)
    """The unit of measurement of columns: `{ age = "years" }`; it goes with results, reports and ledgers."""
    imaging: ImagingTable | None = None
    """Brain images instead of tables."""
    design: Design | None = None
    """The design of a regression, in place of its columns and ranges."""
    imputation: Path | None = None
    """A public model of the columns of a design, from which [missing values](missing.md#from-a-public-model) with the
    rule `"impute"` are drawn: the file that `zerosum synth model` writes. A serving site needs a copy among its
    `files`."""
    sites: tuple[RosterTable, ...]
    """The roster, `[[sites]]`: at least two sites with different names."""
    site_files: tuple[SiteFile, ...] = Field(default=(), exclude=True)
    folder: Path = Field(default=Path(), exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _split_private(cls, record: Any) -> Any:
        """Split the record into the public part and the private site entries. Complete [unit]."""
        if not isinstance(record, dict) or record.get("site_files"):
            return record
        # Before validation, since the public model has no such entries and would refuse them.
        record = split_private_entries(record)
        unit = record.get("unit", {})
        if isinstance(unit, dict) and "kind" not in unit:
            if record.get("imaging") is None:
                unknown = [each for each in unit if each != "adjacency"]
                raise ValueError(
                    'declare the protected unit: kind = "person" or kind = "record" in [unit]; a row may be either'
                    + (f". There is an unknown entry {unknown[0]!r}" if unknown else "")
                )
            record["unit"] = {"kind": "person", **unit}
        return record

    @classmethod
    def load(cls, path: Path) -> Study:
        """Read a study file. Relative paths in it are relative to its folder. Raises `BadStudy`."""
        try:
            record = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BadStudy(f"there is no study file {path}") from None
        except OSError as error:
            raise BadStudy(f"the study file {path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadStudy(f"the study file {path} is not valid TOML: {error}") from None
        # Internal fields of the model. A file must not set them.
        for entry in ("folder", "site_files"):
            if entry in record:
                raise BadStudy(f"the study file {path} has an unknown entry {entry!r}")
        try:
            return cls(**record, folder=path.parent)
        except ValidationError as error:
            first, *others = error.errors()
            where = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
            if where in RENAMED and first["type"] == "extra_forbidden":
                raise BadStudy(f"the study file {path}: {where} is called {RENAMED[where]} since 0.2") from None
            if where == "sites.labels":
                raise BadStudy(
                    f"the study file {path}: labels are declared in a site's schema now: `labels = ...` in "
                    '[columns.NAME] of the file that `schema = "..."` names in [[sites]]'
                ) from None
            what = _reason(first["type"], first["msg"])
            # An entry that is missing is often there under a misspelt name.
            unknown = [str(each["loc"][-1]) for each in others if each["type"] == "extra_forbidden"]
            if first["type"] == "missing" and unknown:
                what += f"; there is an unknown entry {unknown[0]!r}"
            raise BadStudy(f"the study file {path}: {where + ': ' if where else ''}{what}") from None

    def with_sites(self, files: Sequence[SiteFile]) -> Study:
        """This study with site files, which replace the private entries of sites with the same name."""
        named = {file.name for file in files}
        if len(named) < len(files):
            raise BadStudy("two site files have the same name")
        stored = [file for file in self.site_files if file.name not in named]
        return self.model_copy(update={"site_files": (*stored, *files)})

    @model_validator(mode="after")
    def _check_imaging(self) -> Self:
        """With [imaging], columns come from the grid and units from the BIDS folders. Refuse other declarations."""
        if self.imaging is None:
            return self
        if "columns" in self.parameters:
            raise ValueError("with [imaging], columns come from the mask or atlas, so parameters must not name any")
        if self.unit.kind != "person" or any(site.unit_column is not None for site in self.site_files):
            raise ValueError("with [imaging], a unit is a person and all its runs, and has no column")
        return self

    @model_validator(mode="after")
    def _check_vocabulary(self) -> Self:
        """With a vocabulary, columns are words and units come from folders. Refuse other declarations."""
        if self.vocabulary is None:
            return self
        if "columns" in self.parameters or self.imaging is not None or self.design is not None:
            raise ValueError("with a vocabulary, columns are its words: no parameter, [imaging] or [design] names any")
        if any(site.unit_column is not None for site in self.site_files):
            raise ValueError(
                "with a vocabulary, folders determine the owner of a document, and there is no column of units"
            )
        return self

    @model_validator(mode="after")
    def _one_basis(self) -> Self:
        """Refuse more than one basis."""
        cosines_too = self.imaging is not None and self.imaging.frequencies is not None
        if sum((self.basis is not None, cosines_too, "basis" in self.parameters)) > 1:
            raise ValueError("give one basis: a file, the frequencies of [imaging], or a parameter")
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other entries. The program is built again, since it depends on them."""
        copied = super().model_copy(update=update, deep=deep)
        # Pydantic copies cached properties with the fields.
        copied.__dict__.pop("_program", None)
        copied.__dict__.pop("definitions", None)
        copied.__dict__.pop("imputed", None)
        return copied

    @cached_property
    def space(self) -> Masker | None:
        """Public grid of an imaging study, read once; None for other studies."""
        return None if self.imaging is None else self.imaging.load_space(self.folder)

    @cached_property
    def public_basis(self) -> Floats | None:
        """Public basis, array of shape (n_columns, K), whose span restricts the algorithm. Read or computed once."""
        if self.imaging is not None and self.space is not None and self.imaging.frequencies is not None:
            return cosines(self.space, self.imaging.frequencies)
        return None if self.basis is None else load_basis(self.folder / self.basis, self.space)

    @cached_property
    def words(self) -> tuple[str, ...] | None:
        """The vocabulary of a study of documents, read once; None for other studies."""
        return None if self.vocabulary is None else load_vocabulary(self.folder / self.vocabulary)

    @cached_property
    def definitions(self) -> dict[str, str]:
        """Definition of each column that is read, from the file `omop`; empty without it."""
        if self.omop is None:
            return {}
        known = Definitions.load(self.folder / self.omop)
        read = self.build_algorithm().columns if self.full_design is None else self.full_design.read
        if unknown := [name for name in read if name not in known.variables]:
            raise BadStudy(f"{self.omop} does not define the column {unknown[0]!r}")
        return {name: known.definition(name) for name in read}

    @cached_property
    def imputed(self) -> Imputation | None:
        """How missing values of the design are drawn from the public model, read once; None without that rule."""
        if self.design is None:
            if self.imputation is not None:
                raise BadStudy("imputation is for a regression with [design]: other algorithms have no such rule")
            return None
        model = None if self.imputation is None else ImputationModel.load(self.folder / self.imputation)
        return self.design.imputation(model)

    @property
    def full_design(self) -> Design | None:
        """Design of a regression, with the roster if sites have effects of their own."""
        return None if self.design is None else self.design.for_sites([site.name for site in self.sites])

    def build_algorithm(self) -> Algorithm:
        """The program, with all parameters from the file. It is built once."""
        return self._program

    @cached_property
    def _program(self) -> Algorithm:
        algorithm = algorithms.build(self.algorithm, self.parameters | self._derived_parameters())
        if self.imaging is not None and algorithm.categories:
            raise BadStudy(f"the algorithm {self.algorithm!r} counts categories, and brain images have none")
        return algorithm

    def _derived_parameters(self) -> dict[str, Any]:
        """Parameters that other tables of the file determine: columns, basis, frequency band and sampling interval.

        The sampling interval (`seconds`) is passed only if it overrides the image files. Otherwise each run has its
        own.
        """
        fields = algorithms.fields(self.algorithm)
        parameters: dict[str, Any] = {} if self.space is None else {"columns": self.space.columns}
        if self.words is not None:
            parameters["columns"] = self.words
        if (design := self.full_design) is not None:
            if not {"standardise", "cause"} & set(fields):
                raise BadStudy(f"the algorithm {self.algorithm!r} is not a regression, and takes no [design]")
            if ("cause" in fields) != (design.time is not None):
                raise BadStudy("a [design] has a time for Cox regression, and for no other regression")
            if "classes" in design.roles and "classes" not in fields:
                raise BadStudy(
                    f"the response {design.response!r} has {len(design.levels[design.response])} levels, and "
                    f"{self.algorithm!r} takes two: 'multinomial-regression' takes more"
                )
            if given := sorted(_DESIGN_PARAMETERS & self.parameters.keys()):
                raise BadStudy(
                    f"with [design], {given[0]} follows from it, so parameters must not give it: [design] has ranges, "
                    "ordinary values and rules for missing ones"
                )
            parameters |= {"columns": design.columns, "lower": design.lower, "upper": design.upper, **design.roles}
            if design.ordinary:
                parameters |= {"center": design.center, "scale": design.scale}
        if self.imaging is not None:
            known = {"band": self.imaging.band, "seconds": self.imaging.seconds}
            # A parameter that is given explicitly has precedence over the image table.
            wanted = [name for name in known if name in fields and name not in self.parameters]
            parameters |= {name: known[name] for name in wanted if known[name] is not None}
        parameters |= self._template_parameters(fields)
        if self.public_basis is not None:
            if "basis" not in fields:
                raise BadStudy(f"the algorithm {self.algorithm!r} takes no basis")
            parameters["basis"] = self.public_basis
        return parameters

    def _template_parameters(self, fields: Collection[str]) -> dict[str, Any]:
        """Parameters that follow from public templates and public people.

        Parameters
        ----------
        fields : collection of str
            Parameters of the algorithm.
        """
        if self.templates is None and self.public_people is None:
            return {}
        takes = [name for name in ("templates", "maps") if name in fields]
        if not takes:
            raise BadStudy(f"the algorithm {self.algorithm!r} takes no templates and no public people")
        given = {name: self.parameters[name] for name in takes if name in self.parameters}
        if self.templates is not None:
            if given:
                raise BadStudy(f"give templates as a file or as the parameter {takes[0]!r}, not both")
            given[takes[0]] = load_templates(self.folder / self.templates, self.space)
        if self.public_people is None:
            return given
        if "public_count" not in fields or not given:
            raise BadStudy("public_people belongs to guided ICA, with templates")
        prepared = self.parameters.get("per_recording", "standardise")
        facts = PublicPeople.of(self._public_units(), np.asarray(given["templates"], dtype=np.float64), prepared)
        return given | facts.parameters()

    def _public_units(self) -> Units:
        """The public people, prepared as those of the sites."""
        path = self.folder / str(self.public_people)
        if self.imaging is not None and self.space is not None and path.is_dir():
            return load_images(path, self.space, self.imaging.preprocessing, self.imaging.selection).units
        columns = self.parameters.get("columns", () if self.space is None else self.space.columns)
        return load_units(path, columns=columns).units

    def plan(self, sites: Sequence[Site] = ()) -> Plan:
        """Make a plan. No data are read.

        Each call makes a plan with a new study name, so that running it is a new study.

        Parameters
        ----------
        sites : sequence of Site
            Sites whose identities are pinned in the plan; empty before they are known.
        """
        # From the file alone: a plan must not depend on data.
        shapes = [PlannedSite(site.name, site.units, site.scale, site.weight, site.identity) for site in self.sites]
        terms = Terms(
            unit=self.unit.kind,
            adjacency=self.unit.adjacency,
            epsilon=self.privacy.epsilon,
            delta=self.privacy.delta,
            scheme=Scheme(self.scheme.name, self.scheme.ratio, self.scheme.combine),
            coalition=coalition_of(self.coalition.colluders, self.coalition.dropouts, len(self.sites)),
            sites=roster_with_identities(sites, shapes),
            results_to_sites=self.results_to_sites,
            calibration=self.privacy.calibration,
            seed=self.privacy.random_state,
            attempts=self.privacy.attempts,
            absences=self.coalition.absences,
            coordinator=self.coordinator,
            parents={} if self.tree is None else self.tree.parents_of([site.name for site in self.sites]),
        )
        return make_plan(self.build_algorithm(), terms, self.name, self._provenance(), self.privacy.noise)

    def outlook(self, plan: Plan | None = None) -> Outlook | None:
        """What to expect of the result before anything is spent; None for algorithms without an expectation.

        Parameters
        ----------
        plan : Plan, optional
            A plan of this study; by default a new one.
        """
        return outlook_of(self.build_algorithm(), plan or self.plan())

    def _provenance(self) -> Provenance:
        """Preprocessing of the data, and SHA-256 digests of the public files, for the plan."""
        # A model that does not fit would stop the sites after their consent.
        _ = self.imputed
        paths = {
            "basis": self.basis,
            "vocabulary": self.vocabulary,
            "imputation": self.imputation,
            "templates": self.templates,
        }
        if self.public_people is not None and (self.folder / self.public_people).is_file():
            paths["public_people"] = self.public_people
        preprocessing: dict[str, Any] = {"missing_tokens": self.missing_tokens} if self.missing_tokens else {}
        if self.measured_in:
            preprocessing["measured_in"] = check_measures(self.measured_in, self.build_algorithm().columns)
        if self.definitions:
            preprocessing["definitions"] = self.definitions
        if self.imaging is not None:
            paths |= {"mask": self.imaging.mask, "atlas": self.imaging.atlas}
            preprocessing |= self.imaging.model_dump(exclude={"mask", "atlas"})
        if self.full_design is not None:
            preprocessing |= {"design": self.full_design.model_dump(mode="json")}
        # Digests and not paths: a site finds its own copy of a public file by its content.
        files = {use: digest(self.folder / path) for use, path in paths.items() if path}
        return Provenance(preprocessing, files, self.purpose, {} if self.permit is None else self.permit.texts())

    def load_sites(self, observer: Observer = nobody, stored: Checkpoint | None = None) -> list[Site]:
        """Read and validate data and policies of all sites. Identities are new, or those of the checkpoint `stored`."""
        # Names are compared before data are read, which may take minutes.
        files = {file.name: file for file in self.site_files}
        if missing := [site.name for site in self.sites if site.name not in files]:
            raise BadStudy(f"the study names no data for {', '.join(map(repr, missing))}: give their site files")
        if unknown := sorted(set(files) - {site.name for site in self.sites}):
            raise BadStudy(f"there is no site named {', '.join(map(repr, unknown))} on the study's roster")
        algorithm = self.build_algorithm()
        return [self._load(files[site.name], algorithm, observer, stored) for site in self.sites]

    def _load(self, site: SiteFile, algorithm: Algorithm, observer: Observer, stored: Checkpoint | None) -> Site:
        """Load one site. Errors are prefixed with its name."""

        def on_scan(done: int, planned: int) -> None:
            observer(Progress("loading", done, planned, site.name))

        try:
            policy = site.load_policy(self.unit.kind, self.unit.adjacency)
            # Before the data are read, which may take minutes.
            check_device(site.device)
            units = self._units(site, algorithm, on_scan)
        except ZerosumError as error:
            raise error.about(f"site {site.name!r}") from error
        return Site(site.name, units.on(site.device), policy, self._identity(site, units, stored))

    def check_policies(self, plan: Plan) -> None:
        """Raise the first refusal of a policy or budget. Reads no data."""
        for refusal in self.refusals(plan):
            raise refusal

    def refusals(self, plan: Plan) -> Iterator[ZerosumError]:
        """Yield the refusals of policies and budgets of the given site files. Policy files that do not exist are
        skipped."""
        names = [site.name for site in plan.sites]
        for file in self.site_files:
            # An analyst may have a rehearsal file without the policies of the sites.
            absent = isinstance(file.policy, Path) and not (file.folder / file.policy).exists()
            if absent or file.name not in names:
                continue
            try:
                policy = file.load_policy(self.unit.kind, plan.adjacency)
                yield from (refusal.about(f"site {file.name!r}") for refusal in refusals(plan, policy))
                check_budget(plan, names.index(file.name), policy)
            except ZerosumError as error:
                yield error.about(f"site {file.name!r}")

    def read_units(
        self,
        site: SiteFile,
        algorithm: Algorithm,
        observer: Observer = nobody,
        notes: list[str] | None = None,
        raw: list[Units] | None = None,
    ) -> Units:
        """Data of one site as this study reads them.

        Parameters
        ----------
        site : SiteFile
            Where the data are.
        algorithm : Algorithm
            Names the columns, categories and rules for missing values.
        observer : callable
            Receives progress reports.
        notes : list of str, optional
            Receives notes about values that are in none of the declared categories. Without it they are a
            `DataWarning`.
        raw : list of Units, optional
            Receives the rows of a table as they were read, before a design makes its columns.
        """
        return self._units(
            site, algorithm, lambda done, planned: observer(Progress("loading", done, planned, site.name)), notes, raw
        )

    def _identity(self, site: SiteFile, units: Units, stored: Checkpoint | None) -> Identity | None:
        """Identity of a site: its own key if the roster names an identity, else that of the checkpoint, else None (a
        new one)."""
        if any(each.identity is not None for each in self.sites if each.name == site.name):
            return site.keep_identity()
        return None if stored is None else stored.identity(site.name, units)

    def _units(
        self,
        site: SiteFile,
        algorithm: Algorithm,
        on_scan: OnScan,
        notes: list[str] | None = None,
        raw: list[Units] | None = None,
    ) -> Units:
        """Units of one site from images, documents or a table."""
        if self.imaging is not None and self.space is not None:
            preprocessing, selection = self.imaging.preprocessing, self.imaging.selection
            return load_images(site.path, self.space, preprocessing, selection, on_scan=on_scan).units
        on_scan(0, 1)
        if self.words is not None:
            units = load_documents(site.path, self.words)
            on_scan(1, 1)
            return units
        design = self.full_design
        faults: list[CellFault] = []
        if site.source is not None:
            # A rehearsal is at its owner's desk, so that it reads the database as it is now.
            site.fetch()
            fetched = defined_columns(site.path)
            stated = self.definitions.items()
            if other := [name for name, each in stated if fetched.get(name, {}).get("definition") != each]:
                raise BadStudy(f"column {other[0]!r} of the site's source has not the study's definition")
        read = algorithm.columns if design is None else design.read
        schema = site.rehearsed_schema()
        units = load_units(
            site.path,
            columns=read,
            unit_column=site.unit_column,
            categories=algorithm.categories if design is None else design.levels,
            missing=algorithm.rules if design is None else design.missing,
            missing_tokens=site_tokens(self.missing_tokens, read, schema),
            **site.reading(schema),
            on_scan=on_scan,
            faults=faults,
        ).units
        on_scan(1, 1)
        # Cells count as at a serving site. Here the caller owns the data: a missing value without a rule, or a cell
        # that is not a number, is an error. A value in none of the categories is a note.
        rules = algorithm.rule_words() if design is None else design.rule_words
        raise_faults([fault for fault in faults if fault.kind != "other"], rules=rules)
        if raw is not None:
            raw.append(units)
        for fault in faults:
            note = f"{fault.sentence}: they count as other or missing"
            note += "; `labels` of the column in the site's schema can map them"
            if notes is None:
                warnings.warn(f"site {site.name!r}: {note}", DataWarning, stacklevel=2)
            else:
                notes.append(f"{note} (the first in data row {fault.row})")
        if design is not None:
            return design.expand(units, site.name, strict=False, storage=site.storage, imputation=self.imputed)
        # Categories may be missing without a rule: they count as "other or missing".
        allowed = [at for at, name in enumerate(algorithm.columns) if name in {*algorithm.rules, *algorithm.categories}]
        try:
            units.check(allowed, [f"column {name!r}" for name in algorithm.columns])
        except BadData as error:
            raise error.about(str(site.path)) from None
        return units

    def on(self, device: str) -> Self:
        """The same study with all its sites computing on `device`, instead of the devices in their files."""
        files = tuple(file.model_copy(update={"device": check_device(device)}) for file in self.site_files)
        return self.model_copy(update={"site_files": files})

    def run(
        self,
        observer: Observer = nobody,
        plan: Plan | None = None,
        checkpoint: Path | str | None = None,
        *,
        approved: bool = True,
    ) -> Result:
        """Load, plan and run in this process. The plan is validated before data are read.

        Parameters
        ----------
        observer : callable
            Receives progress reports.
        plan : Plan, optional
            Plan to run unchanged; by default a new one.
        checkpoint : path, optional
            Folder in which the state is stored. A killed study is resumed, and a finished one returns its result at no
            cost.
        approved : bool
            Whether `plan` was approved: it is refused if the study file has changed since. False for a plan that this
            object has just made by `plan`.
        """
        approved = approved and plan is not None
        # An approved plan runs unchanged, since ledgers and consents refer to its digest.
        chosen = plan or self.plan()
        check_coordinator(chosen)
        if approved and chosen.public_digest != (own := self.plan().public_digest):
            raise Refused(
                f"the plan is of another study: its public digest is {chosen.public_digest[:16]}, that of this study "
                f"{own[:16]}"
            )
        if checkpoint is None:
            # Policies before data: a refusal must not wait for the loading.
            self.check_policies(chosen)
            sites = self.load_sites(observer)
            return execute_in_process(pin(chosen, sites), self.build_algorithm(), sites, observer)
        stored = Checkpoint(checkpoint)
        stored.check(chosen, approved=approved)
        sites = self.load_sites(observer, stored)
        with stored.journal(chosen, sites, approved=approved) as journal:
            return execute_in_process(journal.plan, self.build_algorithm(), sites, observer, journal)

    def write(self, result: Result, folder: Path) -> list[Path]:
        """Write a result to a new folder, with maps and report. Returns the paths of the maps."""
        result.write(folder)
        return self.illustrate(folder, result)

    def illustrate(self, folder: Path, result: Result | None = None, key: Identity | None = None) -> list[Path]:
        """Write maps (NIfTI and PNG, imaging studies only) and the report beside a result.

        Parameters
        ----------
        folder : Path
            Folder with the written result.
        result : Result, optional
            By default read from the folder.
        key : Identity, optional
            Signs the report.

        Returns
        -------
        list of Path
            The map files.
        """
        shown_result = result or Result.read(folder)
        maps = [] if self.space is None else self._write_maps(shown_result.estimate, folder)
        write_report(folder, self.space, shown_result, key)
        return maps

    def _write_maps(self, estimate: Estimate, folder: Path) -> list[Path]:
        """Write every estimate that is a picture over the grid. Returns the paths of images, drawings and sidecars."""
        if self.space is None:
            return []
        written: list[Path] = []
        brains: list[Path] = []
        for name, quantity in estimate.items():
            if quantity.kind in PICTURES and quantity.axes[-1].name == "column":
                # A single map has no axis of components.
                maps = np.atleast_2d(quantity.value)
                written += [folder / f"{name}.nii.gz", folder / f"{name}.png"]
                write_maps(maps, self.space, written[-2])
                labels = self._map_labels(estimate, maps) if quantity.kind in ("map", "component") else None
                given: dict[str, Any] = {"labels": labels, "threshold": _noise_level(name, estimate)}
                draw_maps(maps, self.space, written[-1], **given)
                # An underlay of another space would lie elsewhere.
                if self.imaging is not None and (self.imaging.space or "").startswith("MNI"):
                    brains.append(folder / f"{name}_brain.png")
                    draw_brains(maps, self.space, brains[-1], **given)
        return written + brains + (write_sidecars(written[::2], self._sidecar_content()) if written else [])

    def _map_labels(self, estimate: Estimate, maps: Floats) -> list[str]:
        """Label of each map: its number, its best match in the atlas of names, strength and stability."""
        matches: tuple[str, ...] = ()
        if self.map_names is not None and self.space is not None:
            matches = best_matches(maps, self.space, self.folder / self.map_names)
        known = [name for name in ("strength", "stability", "share_kept") if name in estimate]
        return [
            "\n".join(
                [
                    str(at + 1),
                    *matches[at : at + 1],
                    *(f"{name.replace('_', ' ')}\n{estimate[name][at]:.2f}" for name in known),
                ]
            )
            for at in range(len(maps))
        ]

    def _sidecar_content(self) -> dict[str, Any]:
        """Content of the JSON sidecars of maps, with BIDS keys where BIDS defines them."""
        prepared = {} if self.imaging is None else self.imaging.model_dump(exclude={"mask", "atlas"}, exclude_none=True)
        files = self._provenance().files  # digests as in plans and ledgers
        return {
            "Study": self.name,
            "Algorithm": self.algorithm,
            "SpatialReference": None if self.imaging is None else self.imaging.space,
            "Grid": None if self.space is None else {"Kind": self.space.kind, "SHA256": files[self.space.kind]},
            "Preprocessing": prepared,
            "Protected": self.unit.kind,
            "Epsilon": self.privacy.epsilon,
            "Delta": self.privacy.delta,
        }


def _noise_level(name: str, estimate: Estimate) -> float:
    """Magnitude below which entries of a picture are within the noise: two standard deviations, where one is known."""
    quantity = estimate[name]
    if quantity.std is not None:
        return 2 * float(np.mean(np.asarray(quantity.std)))
    if name != "map_difference" or "difference_noise" not in estimate:
        return 0.0
    # The shrunk difference has the noise of the released one times the factor of its entries.
    each = float(estimate["difference_noise"][0]) / np.sqrt(quantity.value.size)
    return float(2 * each * np.sqrt(np.mean(estimate["share_kept"].value)))


def _reason(kind: str, message: str) -> str:
    """Message for one validation error of pydantic."""
    if kind == "missing":
        return "this entry is missing"
    if kind == "extra_forbidden":
        return "there is no such entry"
    return message.removeprefix("Value error, ")
