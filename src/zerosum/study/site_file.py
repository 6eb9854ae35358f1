"""Site file model: private settings of a site (data path, unit column, policy, identity, state, limits)."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from zerosum.compute.devices import HOST, NAMES
from zerosum.data.sources import Snapshot, Source, defined_columns, fetch
from zerosum.data.spelling import Spelling
from zerosum.data.spool import Storage, memory_bytes
from zerosum.errors import BadStudy, first_fault
from zerosum.kernel.statistic import Adjacency
from zerosum.secagg.keys import Identity
from zerosum.site.health import Limits
from zerosum.site.identity import former_identities, keep_identity
from zerosum.site.policy import Policy
from zerosum.site.schema import ColumnSchema, DataSchema
from zerosum.site.secrets_kept import KeptSecrets

# Entries of [[sites]] in a study file that belong to the site, and are not part of the public study.
_PRIVATE = ("data", "source", "policy", "unit_column", "delimiter", "encoding", "schema", "device", "limits", "audit")


class _Table(BaseModel):
    """Base of all tables: immutable, and unknown entries are errors."""

    # A misspelt limit or policy would otherwise be ignored, and its default would be used in silence.
    model_config = ConfigDict(frozen=True, extra="forbid")


class ConsentTable(_Table):
    """Table [consent]: who decides about plans."""

    automatic: bool = Field(False, strict=True)
    """Whether plans that fit the policy need no steward."""


class RolesTable(_Table):
    """Table [roles]: groups of this machine's users who decide or audit without being the site's own user."""

    sockets: Path = Path("/run/zerosum")
    """The folder of the sockets `steward` and `auditor`, which both groups must be able to enter."""
    stewards: str | None = None
    """The group whose members decide about plans: `zerosum site approve DIGEST --desk /run/zerosum/steward`."""
    auditors: str | None = None
    """The group whose members read the ledger and have the audit log checked: `zerosum site ledger --desk
    /run/zerosum/auditor`."""


class LimitsTable(_Table):
    """Table [limits]: resources and time-outs of a serving site. The defaults were chosen by hand; no benchmark
    recorded."""

    frame_bytes: int = Field(1 << 28, gt=0, strict=True)
    """Largest message in bytes."""
    seconds: float = Field(600.0, gt=0, allow_inf_nan=False, strict=True)
    """Seconds until a silent connection is closed."""
    connections: int = Field(64, gt=0, strict=True)
    """Largest number of simultaneous connections."""
    studies: int = Field(8, gt=0, strict=True)
    """Largest number of simultaneous studies. Further ones wait in a queue."""
    start_seconds: float = Field(3600.0, gt=0, allow_inf_nan=False, strict=True)
    """Seconds that budget and a place stay reserved for a study that was agreed to and sends nothing more."""
    hold_seconds: float = Field(172800.0, gt=0, allow_inf_nan=False, strict=True)
    """Seconds that budget stays reserved for a silent study."""
    settle_seconds: float = Field(600.0, ge=0, allow_inf_nan=False, strict=True)
    """Seconds that budget stays reserved after the last round of a study."""
    disk_free: str | int = "200 MB"
    """Least free space on the disks of the state folder, the ledger and its counter; with less `zerosum site health`
    fails."""
    decide_seconds: float = Field(604800.0, gt=0, allow_inf_nan=False, strict=True)
    """Longest time that a plan may wait for the steward; then `zerosum site health` fails."""
    metrics_seconds: float = Field(10.0, gt=0, allow_inf_nan=False, strict=True)
    """Seconds between two writes of the metrics."""
    memory: str | int = "4 GB"
    """Memory for the rows of a study. More rows are read from a file without a name in the state folder."""

    @field_validator("memory", "disk_free")
    @classmethod
    def _amount(cls, value: str | int) -> str | int:
        """Refuse what is no amount of memory."""
        memory_bytes(value)
        return value

    @property
    def health(self) -> Limits:
        """The thresholds of the health check."""
        return Limits(memory_bytes(self.disk_free), self.decide_seconds)


class AuditTable(_Table):
    """Table [audit]: what is kept for the site's own auditor."""

    secret_days: float = Field(90.0, ge=0, allow_inf_nan=False, strict=True)
    """Days for which the secrets of a study's contributions are kept after the last one, for `zerosum site audit
    replay`; 0: none are kept. With them and the results this site's exact sums can be computed. Chosen by hand."""


class SiteFile(_Table):
    """A site's own file, or its part of a study file."""

    name: str = Field(min_length=1)
    """The site's name, as on the roster."""
    data: Path | None = None
    """Its table, or its folder of images or documents."""
    source: Source | None = None
    """Its database, instead of `data`: a table of its own, see [databases](sources.md)."""
    unit_column: str | None = None
    """Column of unit labels: rows with equal labels belong to one unit; without it every row is a unit. It overrides
    `column` in the study's `[unit]`."""
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    """Separator of cells in its text files, one character; by default a comma, in `.tsv` files a tab."""
    encoding: str | None = None
    """Encoding of its text files, by default UTF-8: `"latin-1"`."""
    policy: Path | dict[str, Any] | None = None
    """Its policy, a file or a table; without one, all defaults, with the site's name as population and the study's
    unit and adjacency."""
    identity: Path = Path("identity.key")
    """The file with its signing key, for a site that runs as a separate process."""
    schema_file: Path = Field(default=Path("schema.toml"), alias="schema")
    """The public description of its data, which `zerosum site schema` drafts and the steward confirms. Plans are
    refused by it, and never by rows."""
    state: Path = Path("state")
    """The folder of its socket, its audit log and its consents."""
    device: str = Field(default=HOST, pattern=NAMES)
    """Where sums over its units are computed: `"cpu"`, or a GPU of its own, `"cuda"` or `"cuda:1"` and so on."""
    files: tuple[Path, ...] = ()
    """Public files that studies stand on, such as masks and atlases; found by their digests."""
    children: dict[str, Path] = Field(default_factory=dict)
    """The sockets of the sites that studies may put below it in a [tree](secure-sum.md#along-a-tree), by name."""
    metrics_file: Path | None = None
    """A file with the site's figures in the OpenMetrics format, for monitors such as node_exporter; all users may read
    it."""
    on_proposal: tuple[str, ...] = ()
    """A command that runs for every plan that waits for the steward, with a text on its standard input:
    `["/usr/bin/mail", "-s", "a plan waits", "steward@example.org"]`."""
    kit: Path | None = None
    """The folder of its NVIDIA FLARE kit, for monitors."""
    consent: ConsentTable = ConsentTable()
    """Who decides about plans."""
    roles: RolesTable = RolesTable()
    """Other users of this machine who decide or audit."""
    audit: AuditTable = AuditTable()
    """What is kept for the site's own auditor."""
    limits: LimitsTable = LimitsTable()
    """How much its process takes on, and how long it waits."""
    folder: Path = Field(default=Path(), exclude=True)

    @classmethod
    def load(cls, path: Path) -> SiteFile:
        """Read a site file. Relative paths in it are relative to its folder. Raises `BadStudy`."""
        try:
            record = tomllib.loads(path.read_text(encoding="utf-8"))
            return cls(**record, folder=path.parent)
        except OSError as error:
            raise BadStudy(f"the site file {path} cannot be read: {error.strerror or error}") from None
        except ValidationError as error:
            raise BadStudy(f"the site file {path}: {first_fault(error)}") from None
        except (ValueError, TypeError) as error:  # not UTF-8, not TOML, or with an entry named folder
            raise BadStudy(f"the site file {path} is not a site's TOML file: {error}") from None

    @model_validator(mode="before")
    @classmethod
    def _moved(cls, record: Any) -> Any:
        """Refuse an entry of version 0.2 with its present place."""
        if isinstance(record, dict) and "labels" in record:
            raise ValueError("labels are declared in the site's schema now: `labels = ...` in [columns.NAME]")
        return record

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        """Refuse no data, and two places of data."""
        if (self.data is None) == (self.source is None):
            raise ValueError("give either data or a source")
        return self

    @property
    def path(self) -> Path:
        """Path of the data, or of the snapshot of the source."""
        if self.data is not None:
            return self.folder / self.data
        # The name in plain letters, and a digest of it: sites of a rehearsal may share a folder.
        plain = re.sub(r"[^A-Za-z0-9]+", "-", self.name).strip("-")
        return self.state_folder / f"data-{plain}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}.parquet"

    def fetch(self, on_rows: Callable[[int], None] | None = None) -> Snapshot:
        """Run the query of the source and replace the snapshot.

        Parameters
        ----------
        on_rows : callable, optional
            Called with the number of rows so far.

        Raises
        ------
        BadStudy
            If the site has no source.
        """
        if self.source is None:
            raise BadStudy(f"the site {self.name!r} has no source to fetch from: its data are {self.path}")
        text = {"delimiter": self.delimiter, "encoding": self.encoding}
        return fetch(self.source, self.folder, self.path, on_rows, **text)

    def check_fetched(self) -> None:
        """Raise `BadStudy` if the site has a source and nothing was fetched from it yet."""
        if self.source is not None and not self.path.is_file():
            raise BadStudy(f"the site {self.name!r} has fetched nothing from its source: run `zerosum site fetch`")

    def rehearsed_schema(self) -> DataSchema | None:
        """The schema that the file names, for rehearsals, which need no confirmation; without one, the declarations in
        a converted file or a snapshot, or None."""
        named = "schema_file" in self.model_fields_set
        # A new site's file names a schema that is not drafted yet.
        drafted = named and (self.schema_path.exists() or self.schema_file != Path("schema.toml"))
        if drafted:
            return DataSchema.load(self.schema_path)
        defined = defined_columns(self.path)
        return DataSchema.model_validate({"columns": defined}) if defined else None

    def reading(self, schema: DataSchema | None) -> dict[str, Any]:
        """Options of the table reader: delimiter, encoding, memory; labels and spellings of numbers by the schema."""
        columns = {} if schema is None else schema.columns
        return {
            "delimiter": self.delimiter,
            "encoding": self.encoding,
            "labels": {name: each.labels for name, each in columns.items() if each.labels and each.type == "category"},
            "spellings": {name: spelling for name, each in columns.items() if (spelling := spelling_of(each))},
            "storage": self.storage,
        }

    @property
    def storage(self) -> Storage:
        """Where the rows of a study are stored."""
        return Storage(memory_bytes(self.limits.memory), self.state_folder)

    @property
    def schema_path(self) -> Path:
        """Path of the schema file."""
        return self.folder / self.schema_file

    @property
    def state_folder(self) -> Path:
        """Path of the state folder."""
        return self.folder / self.state

    @property
    def socket(self) -> Path:
        """Path of the Unix socket of a serving site."""
        return self.state_folder / "socket"

    @property
    def kept_secrets(self) -> KeptSecrets:
        """The secrets that are kept for the site's auditor."""
        return KeptSecrets(self.state_folder, self.audit.secret_days)

    @property
    def audit_log(self) -> Path:
        """Path of the audit log (JSON lines)."""
        return self.state_folder / "audit.jsonl"

    def keep_identity(self) -> Identity:
        """Load the signing identity, or create it."""
        return keep_identity(self.folder / self.identity)

    def former_identities(self) -> list[Identity]:
        """Earlier signing identities."""
        return former_identities(self.folder / self.identity)

    def own_policy(self) -> Policy:
        """Policy of a serving site, which must have one. Raises `BadStudy` otherwise."""
        if self.policy is None:
            raise BadStudy(f"the site {self.name!r} has no policy: add one to its file")
        # The arguments are defaults for a missing policy and have no effect here.
        return self.load_policy("person", Adjacency.REPLACE_ONE)

    def load_policy(self, unit: Literal["person", "record"], adjacency: Adjacency) -> Policy:
        """The policy, or the default one for the study's unit and adjacency.

        Parameters
        ----------
        unit, adjacency
            Of the study. They are used only if the site has no policy.
        """
        if isinstance(self.policy, Path):
            return Policy.load(self.folder / self.policy)
        if self.policy is None:
            return Policy(population=self.name, unit=unit, adjacency=adjacency)
        return Policy.parse(self.policy, self.folder, "its policy")


def spelling_of(column: ColumnSchema) -> Spelling | None:
    """How the cells of a column of numbers are written, as its schema declares; None if plainly."""
    if column.is_plain or column.type == "category":
        return None
    return Spelling(
        column.decimal,
        column.thousands,
        column.date or "",
        column.origin,
        column.age_at,
        {word.strip(): float(value) for word, value in column.labels.items()},
    )


def split_private_entries(record: dict[str, Any]) -> dict[str, Any]:
    """Move private entries of [[sites]], and the unit column of [unit], to the key `site_files`.

    Parameters
    ----------
    record : dict
        The parsed study file, with the entry `folder`. It is not changed.

    Returns
    -------
    dict
        The public record. Its `sites` have no private entries, so that paths and labels of a site are never in a plan.
    """
    # A copy, since pydantic passes the caller's own record.
    record, folder = dict(record), record.get("folder", Path())
    unit = record.get("unit")
    column = None
    if isinstance(unit, dict) and "column" in unit:
        column = unit["column"]
        record["unit"] = {name: value for name, value in unit.items() if name != "column"}
    sites = record.get("sites")
    # Malformed entries are left to the model, whose message names them.
    if not isinstance(sites, list | tuple) or not all(isinstance(site, dict) for site in sites):
        return record
    private = []
    for site in sites:
        own = {name: site[name] for name in _PRIVATE if name in site}
        if own:
            # The study's unit column is the default of every site; an entry of the site replaces it.
            usual = {} if column is None else {"unit_column": column}
            private.append({"name": site.get("name", ""), "folder": folder} | usual | own)
    record["sites"] = [{name: value for name, value in site.items() if name not in _PRIVATE} for site in sites]
    record["site_files"] = private
    return record


def digest(path: Path) -> str:
    """SHA-256 of a public file, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BadStudy(f"the file {path} cannot be read: {error.strerror or error}") from None
