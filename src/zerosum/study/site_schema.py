"""Schema of a site's data: draft from the data, comparison with the data, confirmation by the steward.

The messages of these functions describe rows and are meant for the steward only. Only the schema itself leaves the
site, after the steward has confirmed it.

    schema.toml             the schema, beside the site's file (its entry `schema`)
    state/schema.confirmed  the digest of the confirmed schema, and the time
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from zerosum.compute.units import Units
from zerosum.data.bids import SELECTED_BY, Recording, entity_values, every_recording
from zerosum.data.documents import document_facts
from zerosum.data.formats import Cells, Table, Text, open_table, parquet_files, readable
from zerosum.data.nifti import Nifti
from zerosum.data.scans import confound_names, run_seconds, strategies_for
from zerosum.data.sources import defined_columns
from zerosum.data.spelling import settings_for, suggestions
from zerosum.data.tables import OnScan, token_set, unit_labels
from zerosum.errors import BadData, BadStudy, CheckFailed, ZerosumError
from zerosum.kernel.grid import BLOCK_ROWS, summation_slack
from zerosum.kernel.plan import Plan
from zerosum.kernel.question import columns_digest
from zerosum.kernel.statistic import Adjacency
from zerosum.site.decisions import write_file
from zerosum.site.policy import Policy
from zerosum.site.schema import ColumnSchema, DataSchema, ImagesSchema, comparable
from zerosum.study.site_data import Faults, fault_lines, load_for
from zerosum.study.site_file import SiteFile, spelling_of

# Largest number of columns that a schema lists. Plans name more columns by their digest only (`kernel.question`).
# Chosen by hand; no benchmark recorded.
MOST_LISTED = 1000
# Common tokens for a missing value among numbers. A draft declares those that it finds.
_COMMON_TOKENS = ("NA", "N/A", "n/a", "NULL", "null", "?", ".")
_MAX_LOGGED = 10  # Most unfit cells or runs logged per plan. A coordinator must not be able to fill the log of a site.
DataVersion = tuple[tuple[str, int, int, int, int], ...]  # path, bytes, mtime (ns), ctime (ns) and inode of each file
_log = logging.getLogger(__name__)  # The log stays at the site.


# ---- draft from the data ---------------------------------------------------------------------------------------------


def draft_schema(site: SiteFile, policy: Policy, on_scan: OnScan | None = None) -> DataSchema:
    """Draft a schema that fits the data. The steward reads and edits it before confirming it.

    Column names, types, presence of missing values, number of units and largest number of rows per unit come from the
    data. Levels and ranges do not: they belong to the code book, and a rare level in a public file could identify a
    person.

    Parameters
    ----------
    site : SiteFile
        Where the data are.
    policy : Policy
        Its adjacency decides whether the number of units is public.
    on_scan : callable, optional
        Receives progress reports.
    """
    site.check_fetched()
    # Folders of images first, since a BIDS folder holds text files, too.
    if site.path.is_dir() and _has_images(site.path):
        return _images_draft(site, policy)
    tables = site.path.is_dir() and parquet_files(site.path)
    if not tables and (site.path.is_dir() or _holds_documents(site.path)):
        units, words = document_facts(site.path)
        counted = _public_count(len(units), policy)
        return DataSchema(kind="documents", units=counted, rows_per_unit=units.largest, words=words)
    scan = _scan(site, on_scan)
    defined = defined_columns(site.path)
    columns = {
        # What a public definition states does not depend on the data.
        name: ColumnSchema(**defined[name]) if name in defined else _column_draft(counts)
        for name, counts in scan.columns.items()
    }
    wide = len(columns) > MOST_LISTED or scan.unnamed
    # In a wide table only columns with text, spellings of their own or tokens for missing values are listed.
    listed = {name: each for name, each in columns.items() if not wide or each != ColumnSchema(missing=each.missing)}
    return DataSchema(
        units=_public_count(scan.units, policy),
        rows_per_unit=scan.rows_per_unit,
        n_columns=len(columns) if wide else None,
        columns_digest=columns_digest(list(columns)) if wide else "",
        missing=any(each.missing for name, each in columns.items() if name not in listed),
        columns=listed,
    )


def _column_draft(seen: _ColumnCounts) -> ColumnSchema:
    """Draft of one column. Settings for numbers and dates are those that most of its cells need, if any do."""
    written = seen.suggested.total()
    settings = settings_for(seen.suggested) if 2 * written > seen.texts else {}
    numbers = seen.numbers + (written if settings else 0)
    is_text = seen.texts + seen.numbers - numbers > numbers
    given: dict[str, Any] = {} if is_text else settings
    return ColumnSchema(
        type="category" if is_text else "number",
        missing=bool(seen.missing or seen.tokens),
        tokens=tuple(sorted(seen.tokens)),
        **given,
    )


def _public_count(units: int, policy: Policy) -> int | None:
    """The number of units under replace-one, where it is public; else None."""
    return units if policy.adjacency is Adjacency.REPLACE_ONE else None


@dataclass
class _ColumnCounts:
    """Counts over the cells of one column."""

    numbers: int = 0
    texts: int = 0
    missing: int = 0
    tokens: set[str] = field(default_factory=set)
    outside: int = 0  # values outside the declared range
    first_text: int = 0  # 1-based data row of the first text cell; 0 for none
    suggested: Counter[tuple[tuple[str, str], ...]] = field(default_factory=Counter)  # settings that read text cells
    unlisted: int = 0  # cells of a column of categories in none of the declared levels


@dataclass
class _Scan:
    """Result of one pass over a table."""

    columns: dict[str, _ColumnCounts]
    units: int
    rows_per_unit: int
    unnamed: bool  # an array file without column names


def _scan(site: SiteFile, on_scan: OnScan | None, schema: DataSchema | None = None) -> _Scan:
    """Read a table once and count kinds of cells. No cell raises an error. `schema` gives declared ranges and
    tokens."""
    with readable(site.path):
        table = open_table(site.path, None, site.unit_column, site.delimiter, site.encoding)
    # An `.npz` file with a label for each row has a unit column of its own.
    owner = site.unit_column or table.unit_column
    if len(set(table.names)) < len(table.names):
        raise BadData(f"two columns of {site.path} have the same name")
    if owner is not None and owner not in table.names:
        raise BadData(f"{site.path} has no column {owner!r}, the column of unit labels")
    # A plan cannot ask about a column without a name.
    names = [name for name in table.names if name not in (owner, "") and _is_supported(site.path, table, name)]
    places = {name: at for at, name in enumerate(table.names)}
    positions = [places[name] for name in names]
    counts = {name: _ColumnCounts() for name in names}
    people: Counter[Any] = Counter()
    rows = 0
    for batch in table.batches(positions if owner is None else [*positions, places[owner]]):
        for name, cells in zip(names, batch, strict=False):
            _count_cells(counts[name], cells, rows, None if schema is None else schema.column(name))
        if owner is not None:
            codes, labels = unit_labels(
                batch[-1], rows, f"column {owner!r} has the unit labels, but is empty in some row"
            )
            # Not Counter.update with a mapping: labels may be equal after spaces are removed, and are added up.
            for label, count in zip(labels, np.bincount(codes).tolist(), strict=True):
                people[label] += count
        rows += len(batch[0])
        if on_scan is not None and table.progress is not None:
            on_scan(*table.progress())
    if rows == 0:
        raise BadData(f"{site.path} has no rows")
    units, most = _sizes(table, rows, people)
    unnamed = table.array is not None and names == [str(at) for at in range(len(names))]
    return _Scan(counts, units, most, unnamed)


def _is_supported(path: Path, table: Table, name: str) -> bool:
    """Whether a column holds numbers or text. Other types, such as dates in a Parquet file, are left out of a schema,
    so that no plan can ask about them."""
    if path.is_file() and path.suffix.lower() not in (".parquet", ".arrow", ".feather"):
        return True
    try:
        # Reading one batch is enough: the type of a column is the same in all batches.
        next(table.batches([table.names.index(name)]), None)
    except BadData:
        return False
    return True


def _sizes(table: Table, rows: int, people: Counter[Any]) -> tuple[int, int]:
    """Number of units, and the largest number of rows of a unit."""
    if people:
        return len(people), max(people.values())
    if table.offsets is not None:
        return len(table.offsets) - 1, int(np.max(np.diff(table.offsets)))
    return rows, 1


def _count_cells(counts: _ColumnCounts, cells: Cells, before: int, declared: ColumnSchema | None) -> None:
    """Update the counts of a column with a batch of cells. `before` is the number of earlier rows."""
    spelling = None if declared is None else spelling_of(declared)
    if spelling is not None and declared is not None:
        cells = spelling.plain(cells, token_set(declared.tokens))
    # A typed column has no words; a text column is parsed cell by cell, each distinct content once.
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        values = cells.astype(np.float64)
        counts.missing += int(np.count_nonzero(np.isnan(values)))
    else:
        text = cells if isinstance(cells, Text) else Text.of(["" if cell is None else str(cell) for cell in cells])
        values = text.numbers()
        own = set() if declared is None else token_set(declared.tokens)
        rows = np.flatnonzero(np.isnan(values))
        codes, contents = text.distinct(rows)
        words = np.zeros(len(contents), dtype=bool)  # neither numbers nor missing values
        for at, (content, count) in enumerate(zip(contents, np.bincount(codes), strict=True)):
            word = content.strip()
            if word == "" or word.lower() == "nan":
                counts.missing += int(count)
            elif word in own or (declared is None and word in _COMMON_TOKENS):
                counts.tokens.add(word)
            else:
                words[at] = True
                counts.texts += int(count)
        counts.suggested += suggestions([contents[at] for at in np.flatnonzero(words)], np.bincount(codes)[words])
        if declared is not None and declared.type == "category":
            counts.unlisted += _unlisted(text, declared)
        if words.any():
            counts.first_text = counts.first_text or before + int(rows[np.argmax(words[codes])]) + 1
    # Infinite numbers count as text. No statistic can use them, so the steward has to correct them.
    finite = values[np.isfinite(values)]
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        counts.first_text, counts.texts = (
            counts.first_text or before + int(infinite[0]) + 1,
            counts.texts + len(infinite),
        )
    if declared is not None:
        as_numbers = [token for token in token_set(declared.tokens) if isinstance(token, float)]
        # A token such as -9 is a number in the file and a missing value by the schema.
        gone = np.isin(finite, as_numbers)
        counts.missing, finite = counts.missing + int(np.count_nonzero(gone)), finite[~gone]
        if declared.range is not None:
            low, high = declared.range
            counts.outside += int(np.count_nonzero((finite < low) | (finite > high)))
    counts.numbers += len(finite)


def _unlisted(text: Text, declared: ColumnSchema) -> int:
    """Number of cells in none of the declared levels, which count as "other" in every study."""
    if not declared.levels:
        return 0
    known = {comparable(each) for each in (*declared.levels, *declared.labels)}
    tokens = token_set(declared.tokens)
    codes, contents = text.distinct()
    missing = [cell.strip() in tokens or cell.strip().lower() in ("", "nan") for cell in contents]
    other = [comparable(cell.strip()) not in known and not gone for cell, gone in zip(contents, missing, strict=True)]
    return int(np.count_nonzero(np.array(other, dtype=bool)[codes]))


def _has_images(folder: Path) -> bool:
    """Whether a folder is a BIDS data set or contains NIfTI files."""
    names = [entry.name for entry in folder.iterdir()]
    images = any(name.lower().endswith((".nii", ".nii.gz")) for name in names)
    return images or "participants.tsv" in names or any(name.startswith("sub-") for name in names)


def _holds_documents(path: Path) -> bool:
    """Whether a file holds documents: text, bags of words, or a sparse matrix."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".npz"]:
        with readable(path), np.load(path, allow_pickle=False) as archive:
            return "indptr" in archive.files
    return suffixes[-1:] in ([".text"], [".txt"]) or suffixes[-2:] == [".txt", ".gz"]


def _images_draft(site: SiteFile, policy: Policy) -> DataSchema:
    """Draft of a schema of brain images, from the headers of all runs."""
    people = every_recording(site.path)
    runs = [run for own in people.values() for run in own]
    images = [Nifti.open(run.path, called="an image") for run in runs]
    clocks = [run_seconds(image, run.sidecars) for image, run in zip(images, runs, strict=True)]
    grid = _common_grid(images)
    return DataSchema(
        kind="images",
        units=_public_count(len(people), policy),
        rows_per_unit=max(sum(_volumes(run) for run in own) for own in people.values()),
        images=ImagesSchema(
            volumes=min(_volumes(run) for run in runs),
            # The longest interval gives the lowest Nyquist frequency, and the smallest number of volumes the fewest
            # degrees of freedom. Plans that fit these bounds fit every run.
            seconds=None if None in clocks else max(clock for clock in clocks if clock is not None),
            confounds=_common_confounds(runs),
            strategies=strategies_for(images[0]) if runs[0].confounds is not None else (),
            selectable={name: values for name in SELECTED_BY if (values := entity_values(runs, name))},
            shape=None if grid is None else grid[0],
            affine=None if grid is None else grid[1],
        ),
    )


def _volumes(run: Recording) -> int:
    """Number of volumes of a run; 1 for a 3D image."""
    shape = Nifti.open(run.path, called="an image").shape
    return int(shape[3]) if len(shape) == 4 else 1


def _common_confounds(runs: Sequence[Recording]) -> tuple[str, ...]:
    """Columns that the confound tables of all runs have."""
    names = [() if run.confounds is None else confound_names(run.confounds) for run in runs]
    return tuple(name for name in names[0] if all(name in each for each in names))


def _common_grid(images: Sequence[Nifti]) -> tuple[Any, Any] | None:
    """Shape and affine if all images share them, else None."""
    first = images[0]
    # The tolerance, 1e-3 mm, is that of `site_data._image_refusals`.
    alike = all(
        image.shape[:3] == first.shape[:3] and np.allclose(image.affine, first.affine, atol=1e-3) for image in images
    )
    if not alike or len(first.shape) < 3:
        return None
    # Rounded to 1e-6 mm for a readable file. This is far below the tolerance of comparisons (1e-3).
    affine = tuple(tuple(round(float(value), 6) for value in row) for row in first.affine)
    return tuple(int(each) for each in first.shape[:3]), affine


# ---- comparison with the data ----------------------------------------------------------------------------------------


@dataclass
class SchemaCheck:
    """Differences between data and schema, for the site's own steward."""

    faults: list[str] = field(default_factory=list)  # each of them prevents serving
    warnings: list[str] = field(default_factory=list)


def check_schema(site: SiteFile, schema: DataSchema, policy: Policy, on_scan: OnScan | None = None) -> SchemaCheck:
    """Compare all data with a schema before the site serves. After this check no row can cause a refusal."""
    schema_check = SchemaCheck()
    if policy.adjacency is Adjacency.ADD_REMOVE and schema.units is not None:
        schema_check.faults.append("under add-remove the number of units is data: take `units` out of the schema")
    if policy.adjacency is Adjacency.REPLACE_ONE and schema.units is None:
        schema_check.faults.append("under replace-one the number of units is public: give `units` in the schema")
    if policy.rows_per_unit is not None and schema.rows_per_unit > policy.rows_per_unit:
        schema_check.faults.append(
            f"the schema allows {schema.rows_per_unit} rows of a person, the policy counts {policy.rows_per_unit}"
        )
    try:
        if schema.kind == "table":
            _check_table(site, schema, policy, schema_check, on_scan)
        else:
            # Counts are compared at the site only, so they may be drafted under any adjacency.
            counting = policy.model_copy(update={"adjacency": Adjacency.REPLACE_ONE})
            _check_draft(schema, draft_schema(site, counting), policy, schema_check)
    except ZerosumError as error:
        schema_check.faults.append(f"{error}{f' ({error.detail})' if error.detail else ''}")
    return schema_check


def _check_table(
    site: SiteFile, schema: DataSchema, policy: Policy, schema_check: SchemaCheck, on_scan: OnScan | None
) -> None:
    """Compare one scan of a table with the schema."""
    scan = _scan(site, on_scan, schema)
    _check_counts(schema, scan.units, scan.rows_per_unit, policy, schema_check)
    own = len(scan.columns), columns_digest(list(scan.columns))
    if schema.n_columns is not None and own != (schema.n_columns, schema.columns_digest):
        schema_check.faults.append("the columns of the data are not those that the schema declares")
    if missing := [name for name in schema.columns if name not in scan.columns]:
        schema_check.faults.append(f"the data have no column {missing[0]!r}, which the schema declares")
    defined = defined_columns(site.path)
    for name, cells in scan.columns.items():
        declared = schema.column(name)
        if declared is None:
            continue  # plans cannot ask about undeclared columns
        if defined and declared.definition != defined.get(name, {}).get("definition", ""):
            schema_check.faults.append(
                f"column {name!r} was not fetched by the definition that the schema declares: run `zerosum site "
                "fetch`, or draft the schema again"
            )
        if (cells.missing or cells.tokens) and not declared.missing:
            schema_check.faults.append(f"column {name!r} has missing values: declare `missing = true`")
        if declared.type == "number" and cells.texts:
            schema_check.faults.append(
                f"column {name!r} is not a finite number in data row {cells.first_text}: {_remedy(cells, declared)}"
            )
        if cells.outside:
            schema_check.warnings.append(f"column {name!r}: {cells.outside} values lie outside the declared range")
        if cells.unlisted:
            schema_check.warnings.append(
                f"column {name!r}: {cells.unlisted} values are none of the declared levels and count as other: declare "
                "what they stand for (`labels`)"
            )


def _remedy(cells: _ColumnCounts, declared: ColumnSchema) -> str:
    """What to do about a cell that is no number, for the steward."""
    if (spelling := spelling_of(declared)) is not None and str(spelling):
        return f"the schema declares {spelling}; correct one of them, or declare `tokens` or `labels` for words"
    if settings := settings_for(cells.suggested):
        return f"declare {' and '.join(f'`{name} = {_toml(value)}`' for name, value in settings.items())}"
    return "correct it, or declare how missing values are written (`tokens`) or words for numbers (`labels`)"


def _check_counts(schema: DataSchema, units: int, rows: int, policy: Policy, schema_check: SchemaCheck) -> None:
    """Compare the number of units and of rows per unit with schema and policy."""
    if schema.units not in (None, units):
        schema_check.faults.append(f"the schema declares {schema.units} units, the data hold {units}")
    if rows > schema.rows_per_unit:
        schema_check.faults.append(f"the schema declares at most {schema.rows_per_unit} rows of a unit, one has {rows}")
    if units < policy.minimum_units:
        schema_check.faults.append(f"the policy asks for at least {policy.minimum_units} units, the data hold {units}")
    # The sensitivity in a plan includes the rounding error of sums, up to a number of units and of rows per unit
    # (`grid.summation_slack`). Larger data would exceed it.
    if summation_slack(units, max(BLOCK_ROWS, schema.rows_per_unit)) > summation_slack():
        schema_check.faults.append(
            "there are too many units, or too many rows in one, for the rounding error that is planned for"
        )


def _check_draft(schema: DataSchema, drafted: DataSchema, policy: Policy, schema_check: SchemaCheck) -> None:
    """Compare the schema of images or documents with a new draft."""
    if drafted.kind != schema.kind:
        schema_check.faults.append(f"the schema declares {schema.kind}, the data are {drafted.kind}")
        return
    _check_counts(schema, drafted.units or 0, drafted.rows_per_unit, policy, schema_check)
    if schema.words != drafted.words:
        schema_check.faults.append("the number of words of the documents is not the declared one")
    declared, own = schema.images, drafted.images
    if declared is None or own is None:
        return
    if own.volumes < declared.volumes:
        schema_check.faults.append(
            f"the schema declares at least {declared.volumes} volumes of a run, one has {own.volumes}"
        )
    if declared.seconds is not None and (own.seconds is None or own.seconds > declared.seconds):
        schema_check.faults.append("some run has a longer time between volumes than the schema declares, or none")
    if unknown := set(declared.confounds) - set(own.confounds):
        schema_check.faults.append(f"some table of confounds has no column {min(unknown)!r}, which the schema declares")
    if declared.shape is not None and (own.shape != declared.shape or own.affine is None):
        schema_check.faults.append("some run lies on another grid than the schema declares")
    for name, values in declared.selectable.items():
        if unknown := set(values) - set(own.selectable.get(name, ())):
            schema_check.faults.append(f"no image has {name} {min(unknown)!r}, which the schema declares")


# ---- confirmation ----------------------------------------------------------------------------------------------------


def confirm_schema(site: SiteFile, schema: DataSchema) -> None:
    """Store, durably, that the steward confirmed this schema."""
    # The digest binds the confirmation to the content: an edited schema is not confirmed any more.
    record = {"digest": schema.digest(), "confirmed": datetime.now(UTC).isoformat(timespec="seconds")}
    write_file(_confirmation_path(site), (json.dumps(record) + "\n").encode())


def confirmed_schema(site: SiteFile) -> DataSchema:
    """The confirmed schema of a site. Raises `BadStudy`, with the next step, if there is none or it was changed."""
    if not site.schema_path.exists():
        raise BadStudy(
            f"the site {site.name!r} has not declared its data yet, and refuses plans by that declaration alone: "
            "run `zerosum site schema`, read what it writes, and confirm it with `zerosum site schema --confirm`"
        )
    schema = DataSchema.load(site.schema_path)
    try:
        known = json.loads(_confirmation_path(site).read_text(encoding="utf-8"))["digest"]
    except (OSError, ValueError, LookupError, TypeError):
        # Any damage of the file counts as no confirmation.
        known = None
    if known != schema.digest():
        raise BadStudy(
            f"the schema {site.schema_path} is not confirmed, or was changed since: read it, and run "
            "`zerosum site schema --confirm`"
        )
    return schema


def _confirmation_path(site: SiteFile) -> Path:
    """Path of the confirmation."""
    return site.state_folder / "schema.confirmed"


def ready_schema(site: SiteFile, policy: Policy, on_scan: OnScan | None = None) -> DataSchema:
    """The confirmed schema after a comparison with all data. Raises `CheckFailed` with all differences."""
    site.check_fetched()
    schema = confirmed_schema(site)
    if faults := check_schema(site, schema, policy, on_scan).faults:
        raise CheckFailed(f"the data of the site {site.name!r} do not fit its schema: {'; '.join(faults)}")
    return schema


# ---- TOML file -------------------------------------------------------------------------------------------------------


def schema_text(schema: DataSchema) -> str:
    """A schema as TOML text, with comments for the steward."""
    record = schema.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    tables = {name: record.pop(name) for name in ("columns", "images") if name in record}
    record = {"kind": schema.kind, "rows_per_unit": schema.rows_per_unit} | record
    lines = [
        "# The public description of this site's data. Plans are refused by this file and never by rows, so everything",
        "# here may be known to coordinators. Lines were drafted from the data: change lines that reveal too much of",
        "# one person, round `rows_per_unit` up, and take `levels` and `range` of columns from the code book.",
        "# Then: zerosum site schema --confirm",
        "",
        *(f"{name} = {_toml(value)}" for name, value in record.items()),
    ]
    for name, column in tables.get("columns", {}).items():
        # Both lines are written also where they have the default, since the steward has to decide about them.
        shown = {"type": "number", "missing": False} | column
        lines += ["", f"[columns.{_toml(name)}]", *(f"{key} = {_toml(value)}" for key, value in shown.items())]
    if "images" in tables:
        selectable = tables["images"].pop("selectable", {})
        lines += ["", "[images]", *(f"{key} = {_toml(value)}" for key, value in tables["images"].items())]
        if selectable:
            lines += ["", "[images.selectable]", *(f"{key} = {_toml(value)}" for key, value in selectable.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """TOML text of a number, boolean, string, list or mapping of these."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(name)} = {_toml(each)}" for name, each in value.items()) + " }"
    # Otherwise it equals the JSON text, except for the character U+007F.
    # TOML requires an escape for U+007F, JSON does not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


# ---- versions of the data files --------------------------------------------------------------------------------------


def data_version(site: SiteFile) -> DataVersion:
    """Sizes, modification times and inodes of all data files. The site refuses to read a version that was not compared
    with the schema."""
    paths = [site.path] if site.path.is_file() else sorted(path for path in site.path.rglob("*") if path.is_file())
    # participants.tsv of the data set that contains a derivatives folder
    listed = site.path.absolute().parent.parent / "participants.tsv"
    parts = []
    for path in [*paths, *([listed] if site.path.is_dir() and listed.is_file() else [])]:
        stored = path.stat()
        parts.append((str(path), stored.st_size, stored.st_mtime_ns, stored.st_ctime_ns, stored.st_ino))
    return tuple(parts)


def served_units(plan: Plan, site: SiteFile, schema: DataSchema, version: DataVersion) -> Units:
    """Units of a plan at a serving site.

    No cell raises an error. Unfit cells are written to the site's own log. Data that changed since the comparison with
    the schema are not read: `BadData` is raised.
    """
    _check_version(site, version)
    faults: Faults = []
    try:
        units = load_for(plan, site, schema, faults)
    finally:
        # Again afterwards: a snapshot may be replaced between the first check and the last batch. What was read then,
        # and any error about it, is of rows that were not compared with the schema.
        _check_version(site, version)
    lines = fault_lines(faults)
    for line in lines[:_MAX_LOGGED]:
        _log.warning("%s: %s", plan.study, line)
    if len(lines) > _MAX_LOGGED:
        _log.warning(
            "%s: %d more cells or runs of this kind; zerosum site dry-run lists all",
            plan.study,
            len(lines) - _MAX_LOGGED,
        )
    return units


def _check_version(site: SiteFile, version: DataVersion) -> None:
    """Raise `BadData` if the data are not those that were compared with the schema."""
    try:
        current = data_version(site)
    except OSError as error:
        raise BadData(f"the data cannot be read: {error.strerror or error}") from None
    # A new row could contradict the schema, and a refusal in the middle of a study would disclose that.
    if current != version:
        raise BadData("the data were changed since the site was started: restart the site") from None
