"""Tables for a paper, as LaTeX, HTML or Word: three rules, numbers aligned, notes below.

A `PaperTable` holds text. It is made from an estimate by `paper_tables`. LaTeX needs the package booktabs only. Word
files are written by python-docx (the extra `docx`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from zerosum import html
from zerosum.errors import BadInput
from zerosum.kernel.names import visible
from zerosum.kernel.quantity import Quantity
from zerosum.kernel.question import Question
from zerosum.kernel.significance import CORRECTIONS, Correction
from zerosum.report.coefficients import INTERCEPT, NOT_IDENTIFIED, CoefficientTable, JointTest, p_text
from zerosum.report.document import Picture, Table
from zerosum.report.mixed import MixedTable
from zerosum.report.number_format import format_number
from zerosum.report.tidy import TidyTable, tidy_tables

# Largest number of rows of a table in a document; larger ones are exported as CSV.
MOST_ROWS = 500
# Word files: width of the text and of pictures by kind in cm, and rows of a table that are kept on one page.
_TEXT_WIDTH, _PICTURE_WIDTHS, _ROWS_OF_A_PAGE = 17.0, {"forest": 17}, 45
# Word files: fewest characters in a line of the first column.
_LABEL_LEAST = 14
_DAGGER = "†"
_MINUS = "\N{MINUS SIGN}"
_SPACE, _EM_SPACE = "\N{NO-BREAK SPACE}", "\N{EM SPACE}"
_POPULATION_NOTE = "95 % CI: for the population, from sampling error and privacy noise."
_POOLED_NOTE = "95 % interval, these data: for the same analysis of the pooled data, without sampling error."
# Characters that have a meaning in LaTeX.
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "–": "--",
    "†": r"$^\dagger$",
    "²": r"$^2$",
    _MINUS: "$-$",
    _SPACE: "~",
}


@dataclass(frozen=True)
class Row:
    """Cells of one row. An indented row belongs to the heading above it."""

    cells: tuple[str, ...]
    indent: int = 0
    heading: bool = False


@dataclass(frozen=True)
class PaperTable:
    """A table of text with a caption and notes; its first column names the rows."""

    name: str
    title: str
    heading: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def as_table(self) -> Table:
        """The table for a terminal or a report."""
        # Em spaces, which pages do not collapse.
        rows = tuple((f"{_EM_SPACE * row.indent}{row.cells[0]}", *row.cells[1:]) for row in self.rows)
        return Table(self.title, tuple(_spaced(self.heading)), tuple(tuple(_spaced(row)) for row in rows))

    def __str__(self) -> str:
        """Title, rows and notes as text."""
        return "\n".join([str(self.as_table()), *self.notes])

    def labelled(self, labels: Mapping[str, str]) -> PaperTable:
        """The table with other names of columns, terms and levels.

        Parameters
        ----------
        labels : mapping of str to str
            Text by the name of a column or a term, or by "COLUMN = LEVEL".
        """
        rows, above = [], ""
        for row in self.rows:
            above = above if row.indent else row.cells[0]
            column = above.partition(", n (%)")[0]
            # A level is found under its column: its own name may stand for a level of another column, too.
            first = (
                labels.get(f"{column} = {row.cells[0]}", row.cells[0]) if row.indent else labelled(row.cells[0], labels)
            )
            rows.append(replace(row, cells=(first, *row.cells[1:])))
        heading = tuple(labelled(head.replace(_SPACE, " "), labels) if head else "" for head in self.heading)
        # Notes name columns before their noise: "age ±2.8".
        notes = tuple(
            re.sub(r"(?<=[ ,])([^ ,]+)(?= ±)", lambda found: labels.get(found[1], found[1]), note)
            for note in self.notes
        )
        return replace(self, heading=heading, rows=tuple(rows), notes=notes)

    def as_tidy(self) -> TidyTable:
        """The texts as a table for CSV and data frames; empty headings get a name."""
        names = [head or ("variable" if at == 0 else f"column {at + 1}") for at, head in enumerate(self.heading)]
        rows, above = [], ""
        for row in self.rows:
            # A level has its column before it, since rows of a data frame have no indent.
            above = above if row.indent else row.cells[0].partition(", n (%)")[0]
            first = f"{above}: {row.cells[0]}" if row.indent else row.cells[0]
            rows.append(tuple(_spaced((first, *row.cells[1:]))))
        return TidyTable(self.name, tuple(_spaced(names)), tuple(rows))


def labelled(text: str, labels: Mapping[str, str]) -> str:
    """A label with the name at its beginning replaced.

    >>> labelled("age, mean (SD)", {"age": "Age, years"}), labelled("ages", {"age": "Age"})
    ('Age, years, mean (SD)', 'ages')
    """
    # The longest name first: "sex = 1" before "sex".
    for name in sorted(labels, key=len, reverse=True):
        if text == name or (text.startswith(name) and text[len(name) :].startswith((", ", " (", f" {_DAGGER}", " = "))):
            return labels[name] + text[len(name) :]
    return text


def _spaced(texts: Iterable[str]) -> Iterator[str]:
    """Texts with ordinary spaces."""
    return (text.replace(_SPACE, " ") for text in texts)


def paper_tables(
    estimate: Mapping[str, Quantity],
    question: Question,
    algorithm: str,
    units: float | None = None,
    correction: Correction = "none",
) -> dict[str, PaperTable]:
    """Tables of a result for a paper, by name.

    Parameters
    ----------
    estimate : mapping of str to Quantity
        The result.
    question : Question
        Public question.
    algorithm : str
        Name of the algorithm.
    units : float, optional
        Public number of units.
    correction : {"none", "holm", "benjamini-hochberg"}
        Adjustment of p values in Table 1; other tables have theirs in the estimate.

    Returns
    -------
    dict of str to PaperTable
        Regressions: `odds_ratios` (or `rate_ratios`, `hazard_ratios`), `coefficients`, `standardised_coefficients`.
        Descriptions: `table1`, then means, quantiles, proportions and differences with intervals. Others: a table for
        each of their quantities.
    """
    from zerosum.report.table_one import table_one
    from zerosum.report.tables import tables_of

    tables: list[PaperTable] = []
    if "pooled_std" in estimate:
        table = CoefficientTable.of(estimate, algorithm)
        ratios = [table.ratios()] if table.ratio else []
        standardised = [table.standardised()] if table.feature_std else []
        tables = [coefficient_table(each) for each in (*ratios, table, *standardised)]
    else:
        if {"mean_population_interval", "proportion"} & estimate.keys():
            tables.append(table_one(estimate, question, units, correction))
        for each in tables_of(estimate):
            tables.append(_plain(each, [one.name for one in tables]))
        if not tables:
            tidy = tidy_tables(estimate, algorithm)
            tables = [of_tidy(each) for each in tidy.values() if 1 < len(each.rows) <= MOST_ROWS or len(tidy) == 1]
    return {each.name: each for each in tables}


def coefficient_table(table: CoefficientTable) -> PaperTable:
    """Table of coefficients or ratios: the estimate with the interval for the population, and that for these data.

    Parameters
    ----------
    table : CoefficientTable
        Coefficients or a table derived from them.
    """
    rows, reasons = [], set()
    for row in table.rows:
        mark = "" if row.identified else f" {_DAGGER}"
        # One note for all rows with the dagger, with each reason once.
        reasons |= set() if row.identified else {row.reason or "the estimate is mostly the prior"}
        estimate, pooled, population = table.texts(row)
        texts = map(_signed, (f"{estimate} ({population})", pooled))
        rows.append(Row((f"{row.label}{mark}", *texts, *table.test_texts(row))))
    notes = [_POPULATION_NOTE, _POOLED_NOTE]
    if table.tested:
        notes.append("p: Wald test for the population.")
        if table.correction != "none":
            count = sum(row.p_adjusted is not None for row in table.rows)
            notes.append(f"Adjusted p: for {count} tests, by {CORRECTIONS[table.correction]}.")
    if reasons:
        notes.append(f"{_DAGGER} {NOT_IDENTIFIED}: {'; '.join(sorted(reasons))}.")
    notes += [f"{caveat[0].upper()}{caveat[1:]}." for caveat in table.caveats]
    measure = table.measure[0].upper() + table.measure[1:]
    heading = (
        "",
        f"{measure} (95{_SPACE}% CI)",
        f"95{_SPACE}% interval, these data",
        *table.test_headings,
    )
    title = table.title if table.names[-1:] != (INTERCEPT,) else f"{table.title} of the model"
    return PaperTable(table.title.lower().replace(" ", "_"), title, heading, tuple(rows), tuple(notes))


def joint_table(tests: Sequence[JointTest], correction: Correction) -> PaperTable:
    """Table of joint tests, one row each.

    Parameters
    ----------
    tests : sequence of JointTest
        The tests, adjusted if there is a correction.
    correction : {"none", "holm", "benjamini-hochberg"}
        The adjustment.
    """
    more = correction != "none"
    rows = tuple(
        Row(
            (
                f"{each.name}{'' if each.identified else f' {_DAGGER}'}",
                f"{each.statistic:.2f}",
                str(each.degrees_of_freedom),
                *map(p_text, (each.p_value, each.p_adjusted)[: 1 + more]),
            )
        )
        for each in tests
    )
    notes = ["p: Wald test that all named coefficients or combinations are 0, for the population."]
    if more:
        notes.append(f"Adjusted p: for {len(tests)} tests, by {CORRECTIONS[correction]}.")
    if not all(each.identified for each in tests):
        notes.append(f"{_DAGGER} a coefficient is {NOT_IDENTIFIED}.")
    heading = ("", "chi-squared", "df", "p", *(["adjusted p"] if more else []))
    return PaperTable("joint_tests", "Joint tests of coefficients", heading, rows, tuple(notes))


def site_table(mixed: MixedTable) -> PaperTable:
    """Table of the random intercepts of sites.

    Parameters
    ----------
    mixed : MixedTable
        The mixed model.
    """
    rows = tuple(
        Row((name, _signed(format_number(value)), format_number(std, 2))) for name, (value, std) in mixed.sites.items()
    )
    notes = (
        mixed.note,
        "Intercepts are drawn towards their mean; standard errors take the standard deviation as known.",
    )
    return PaperTable("site_intercepts", "Intercepts of the sites", ("", "Intercept", "SE"), rows, notes)


def of_tidy(table: TidyTable) -> PaperTable:
    """A tidy table as text: the labels, the estimate, and one interval for each kind of error.

    Parameters
    ----------
    table : TidyTable
        The table.
    """
    at = {name: place for place, name in enumerate(table.columns)}
    labels = list(table.columns[: at["estimate"]])
    intervals: dict[str, dict[tuple[Any, ...], str]] = {}
    estimates: dict[tuple[Any, ...], str] = {}
    for row in table.rows:
        place = row[: len(labels)]
        estimates[place] = format_number(_number(row[at["estimate"]]))
        if row[at["conf_low"]] is not None:
            ends = (format_number(_number(row[at[end]])) for end in ("conf_low", "conf_high"))
            intervals.setdefault(str(row[at["kind"]]), {})[place] = " to ".join(ends)
    heads = {"population": f"95{_SPACE}% CI", "pooled": f"95{_SPACE}% interval, these data"}
    shown = [kind for kind in heads if kind in intervals]
    rows = tuple(
        Row(
            (
                ", ".join(map(str, place)) or table.name,
                _signed(text),
                *(_signed(intervals[kind].get(place, "")) for kind in shown),
            )
        )
        for place, text in estimates.items()
    )
    notes = [note for kind, note in (("population", _POPULATION_NOTE), ("pooled", _POOLED_NOTE)) if kind in shown]
    title = table.name.replace("_", " ")
    return PaperTable(
        table.name,
        title[0].upper() + title[1:],
        (", ".join(labels).replace("_", " "), "estimate", *(heads[kind] for kind in shown)),
        rows,
        tuple(notes),
    )


def _plain(table: Table, taken: Sequence[str]) -> PaperTable:
    """A table of the report with its name columns joined, for a paper."""
    base = "_".join("".join(c if c.isalnum() else " " for c in table.title.lower()).split())
    short = base.partition("_95_")[0]
    name = next(each for each in (short, *(f"{short}_{at}" for at in range(2, 1000))) if each not in taken)
    names = max(table.names, 1)
    rows = tuple(Row((", ".join(row[:names]), *map(_signed, row[names:]))) for row in table.rows)
    notes = (
        (_POOLED_NOTE.replace("interval, these data", "these data"),)
        if any("these data" in head for head in table.heading)
        else ()
    )
    return PaperTable(name, table.title, (", ".join(table.heading[:names]), *table.heading[names:]), rows, notes)


def _number(cell: Any) -> float | None:
    """A cell as a number, or None."""
    return None if cell is None else float(cell)


def _signed(text: str) -> str:
    """Text with minus signs instead of hyphens before numbers."""
    return "".join(
        _MINUS if c == "-" and text[at + 1 : at + 2].isdigit() and (at == 0 or text[at - 1] in " ([") else c
        for at, c in enumerate(text)
    )


# ---- formats -------------------------------------------------------------------------------------------------------


def latex(tables: Sequence[PaperTable], methods: Sequence[str] = ()) -> str:
    """LaTeX text: one floating table for each, after the methods text. The document needs `\\usepackage{booktabs}`.

    Parameters
    ----------
    tables : sequence of PaperTable
        The tables.
    methods : sequence of str
        Paragraphs.
    """
    parts = ["% \\usepackage{booktabs}"]
    parts += [f"{escape_latex(paragraph)}\n" for paragraph in methods]
    for table in tables:
        lines = [
            r"\begin{table}[htbp]",
            r"\centering",
            rf"\caption{{{escape_latex(table.title)}}}",
            rf"\label{{tab:{_label(table.name)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(table.heading) - 1)}}}",
            r"\toprule",
            " & ".join(map(escape_latex, table.heading)) + r" \\",
            r"\midrule",
        ]
        for row in table.rows:
            first = r"\quad " * row.indent + escape_latex(row.cells[0])
            lines.append(" & ".join((first, *map(escape_latex, row.cells[1:]))) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}"]
        if table.notes:
            notes = " ".join(map(escape_latex, table.notes))
            lines += ["", r"\medskip", rf"\parbox{{\linewidth}}{{\footnotesize {notes}}}"]
        parts.append("\n".join([*lines, r"\end{table}", ""]))
    return "\n".join(parts)


def _label(name: str) -> str:
    """A table's name as a LaTeX label: letters, digits and hyphens. A folder with a result may come from others."""
    return re.sub("[^A-Za-z0-9]+", "-", name)


def escape_latex(text: str) -> str:
    """Text with the characters escaped that have a meaning in LaTeX.

    >>> escape_latex("chol_mg 10 % & [a]")
    'chol\\\\_mg 10 \\\\% \\\\& {[}a]'
    """
    # A bracket at the beginning of a row would be read as the optional argument of the line break before it.
    return "".join(_LATEX.get(c, "{[}" if c == "[" else c) for c in visible(text))


def html_page(title: str, tables: Sequence[PaperTable], methods: Sequence[str] = ()) -> str:
    """A standalone HTML page with the tables, which word processors open and browsers print.

    Parameters
    ----------
    title : str
        Title of the page.
    tables : sequence of PaperTable
        The tables.
    methods : sequence of str
        Paragraphs.
    """
    return str(html.call("report/paper.html", "page", title, list(methods), list(tables)))


def docx(
    title: str, tables: Sequence[PaperTable], methods: Sequence[str] = (), pictures: Sequence[Picture] = ()
) -> bytes:
    """A Word document with the methods text, the tables with three rules, and the pictures.

    Parameters
    ----------
    title : str
        Heading of the document.
    tables : sequence of PaperTable
        The tables.
    methods : sequence of str
        Paragraphs.
    pictures : sequence of Picture
        Charts, inserted at 300 dots per inch.

    Raises
    ------
    BadInput
        If python-docx is not installed.
    """
    try:
        from docx import Document as WordDocument
        from docx.shared import Cm, Pt
    except ModuleNotFoundError:
        raise BadInput("a Word file needs python-docx: pip install 'zerosum[docx]'") from None
    from zerosum.report.charts import picture_file

    document = WordDocument()
    page = document.sections[0]
    page.page_width, page.page_height = Cm(21), Cm(29.7)
    page.left_margin = page.right_margin = page.top_margin = page.bottom_margin = Cm(2)
    document.styles["Normal"].font.name = "Calibri"
    document.styles["Normal"].font.size = Pt(10)
    document.add_heading(visible(title), 1)
    for paragraph in methods:
        document.add_paragraph(visible(paragraph))
    for table in tables:
        _word_table(document, table)
    for picture in pictures:
        caption = document.add_paragraph()
        caption.paragraph_format.space_before, caption.paragraph_format.keep_with_next = Pt(12), True
        caption.add_run(f"{visible(picture.title)}. ").bold = True
        caption.add_run(visible(picture.about))
        document.add_picture(io.BytesIO(picture_file(picture, "png")), width=Cm(_PICTURE_WIDTHS.get(picture.kind, 12)))
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def _word_table(document: Any, table: PaperTable) -> None:
    """Add a table to a Word document: caption above, rules at the top, below the heading and at the bottom, notes.

    Parameters
    ----------
    document : docx.document.Document
        The document, changed in place.
    table : PaperTable
        The table.
    """
    from docx.enum.table import WD_TABLE_ALIGNMENT
    from docx.enum.text import WD_ALIGN_PARAGRAPH
    from docx.shared import Cm, Pt

    caption = document.add_paragraph()
    caption.paragraph_format.space_before, caption.paragraph_format.keep_with_next = Pt(12), True
    caption.add_run(visible(table.title)).bold = True
    grid = document.add_table(rows=1 + len(table.rows), cols=len(table.heading))
    grid.alignment = WD_TABLE_ALIGNMENT.CENTER
    lines = [Row(table.heading), *table.rows]
    # Longer tables cannot stay on one page.
    together = len(lines) <= _ROWS_OF_A_PAGE
    widths = _widths(table)
    grid.autofit = False
    # Word takes the widths of cells, LibreOffice those of columns.
    for c, width in enumerate(widths):
        grid.columns[c].width = Cm(width)
    for r, line in enumerate(lines):
        # `row.cells` is computed anew at each access, which would make long tables slow.
        cells = grid.rows[r].cells
        for c, text in enumerate(line.cells):
            paragraph = cells[c].paragraphs[0]
            paragraph.paragraph_format.space_after = Pt(1)
            paragraph.paragraph_format.keep_with_next = together and r < len(lines) - 1
            cells[c].width = Cm(widths[c])
            # Numbers with their intervals stay on one line.
            run = paragraph.add_run(visible(text.replace(" ", _SPACE) if c and r else text))
            run.font.size = Pt(9)
            run.bold = r == 0
            if c == 0:
                paragraph.paragraph_format.left_indent = Cm(0.4 * line.indent)
            else:
                paragraph.alignment = WD_ALIGN_PARAGRAPH.RIGHT
            _rule(cells[c], top=r == 0, bottom=r in (0, len(lines) - 1))
    for note in table.notes:
        paragraph = document.add_paragraph()
        paragraph.paragraph_format.space_after = Pt(0)
        paragraph.add_run(visible(note)).font.size = Pt(8)


def _widths(table: PaperTable) -> list[float]:
    """Widths of the columns of a Word table in cm, from their longest texts.

    Headings and the names of rows may be wrapped between words; numbers with their intervals may not. A table that is
    too wide loses width in its first column, and only then in all.
    """
    widths = []
    for c, head in enumerate(table.heading):
        words = max(map(len, head.split(" ")), default=0)
        widths.append(_cell_width(max(words, *(len(row.cells[c]) + 2 * row.indent for row in table.rows), 4)))
    longest = max(len(word) for row in table.rows for word in row.cells[0].split(" ")) if table.rows else 0
    least = min(widths[0], _cell_width(max(longest, _LABEL_LEAST)))
    widths[0] -= min(max(sum(widths) - _TEXT_WIDTH, 0.0), widths[0] - least)
    scale = min(1.0, _TEXT_WIDTH / sum(widths))
    return [width * scale for width in widths]


def _cell_width(characters: int) -> float:
    """Width of a cell in cm: its margins, and 0.165 cm for each digit of Calibri at 9 points."""
    return 0.4 + 0.165 * characters


def _rule(cell: Any, *, top: bool, bottom: bool) -> None:
    """Draw lines above and below a cell. python-docx has no interface for borders of cells."""
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    if not (top or bottom):
        return
    borders = OxmlElement("w:tcBorders")
    for side, drawn in (("top", top), ("bottom", bottom)):
        if drawn:
            line = OxmlElement(f"w:{side}")
            for key, value in (("val", "single"), ("sz", "8"), ("space", "0"), ("color", "000000")):
                line.set(qn(f"w:{key}"), value)
            borders.append(line)
    cell._tc.get_or_add_tcPr().append(borders)
