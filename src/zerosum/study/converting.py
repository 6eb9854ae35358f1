"""Converters: REDCap exports and FHIR bulk files to tables for a site, and drafts of studies from public files.

A converter writes a Parquet file. Its metadata have entries of a schema by column, from the public dictionary or
definitions, which `zerosum site schema` copies into its draft (`zerosum.data.sources.defined_columns`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zerosum.data.fhir import FhirDefinitions, fhir_rows
from zerosum.data.formats import Text, open_table, readable
from zerosum.data.redcap import Dictionary, read_dictionary
from zerosum.data.sources import write_defined
from zerosum.errors import BadData

__all__ = ["convert_fhir", "convert_redcap", "read_dictionary", "read_fhir", "study_draft"]
Columns = Mapping[str, Mapping[str, Any]]  # entries of a schema, by column


def convert_redcap(dictionary: Dictionary, export: Path, out: Path) -> int:
    """Write the columns of a REDCap export that its dictionary declares.

    Parameters
    ----------
    dictionary : Dictionary
        The data dictionary.
    export : Path
        CSV in UTF-8, with codes or with labels of choices.
    out : Path
        A new Parquet file.

    Returns
    -------
    int
        Number of rows.
    """
    import pyarrow as pa

    with readable(export):
        table = open_table(export, None, None)
    names = [dictionary.record, *dictionary.columns]
    if missing := [name for name in names if name not in table.names]:
        raise BadData(f"{export} has no column {missing[0]!r}, which the dictionary declares")
    schema = pa.schema([(name, pa.string()) for name in names])

    def batches() -> Any:
        for batch in table.batches([table.names.index(name) for name in names]):
            # Text as it stands: the schema declares how it is read.
            columns = [cells.strings for cells in batch if isinstance(cells, Text)]
            yield pa.record_batch(columns, schema=schema)

    return write_defined(out, schema, batches(), dictionary.columns)


def convert_fhir(definitions: FhirDefinitions, folder: Path, out: Path) -> int:
    """Write one row for each patient of FHIR bulk files. Returns the number of rows.

    Parameters
    ----------
    definitions : FhirDefinitions
        The variables.
    folder : Path
        Folder with NDJSON files.
    out : Path
        A new Parquet file.
    """
    import pyarrow as pa

    rows = fhir_rows(definitions, folder)
    kinds = {name: pa.string() if each.kind == "sex" else pa.float64() for name, each in definitions.variables.items()}
    schema = pa.schema(list(kinds.items()))
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds.values())]
    return write_defined(out, schema, iter([pa.record_batch(columns, schema=schema)]), definitions.columns())


def read_fhir(path: Path) -> FhirDefinitions:
    """Read the definitions of variables for FHIR."""
    return FhirDefinitions.load(path)


def study_draft(columns: Columns, name: str, roster: tuple[str, ...] = ("north", "south", "west")) -> str:
    """Text of a study file that describes columns, from a public dictionary or definitions alone.

    Numbers without a range are comments: a range is taken from the subject, not from data.

    Parameters
    ----------
    columns : mapping
        Entries of a schema, by column.
    name : str
        Name of the study.
    roster : tuple of str
        Names of the sites, to be replaced.

    >>> print(study_draft({"age": {"range": [18, 90]}, "crp": {}}, "baseline").splitlines()[6])
    columns = ["age"]
    """
    numbers = {each: own["range"] for each, own in columns.items() if own.get("range") is not None}
    levels = {each: own["levels"] for each, own in columns.items() if own.get("levels")}
    open_ = [each for each in columns if each not in numbers and each not in levels]
    missing = [each for each in (*numbers, *levels) if columns[each].get("missing")]

    def lines(entries: Mapping[str, Any]) -> list[str]:
        return [f"{_text(each)} = {_text(value)}" for each, value in entries.items()]

    return "\n".join(
        [
            "# Drafted from the public dictionary alone: no record was read.",
            "",
            f"name = {_text(name)}",
            'algorithm = "describe"',
            "",
            "[parameters]",
            f"columns = {_text([*numbers, *levels])}",
            *(f"# {_text(each)}: add its range from the subject to use it" for each in open_),
            *(["", "[parameters.ranges]", *lines(numbers)] if numbers else []),
            *(["", "[parameters.levels]", *lines(levels)] if levels else []),
            *(["", "[parameters.missing]", *lines(dict.fromkeys(missing, "observed"))] if missing else []),
            *("", "[unit]", 'kind = "person"', "", "[privacy]", "epsilon = 1.0", "delta = 1e-5"),
            *(line for each in roster for line in ("", "[[sites]]", f"name = {_text(each)}")),
            "",
        ]
    )


def _text(value: Any) -> str:
    """A value or a key as TOML, which is JSON for text, numbers and lists."""
    # TOML forbids the character DEL in text, which JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
