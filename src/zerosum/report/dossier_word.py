"""A document of sections as a Word file, with python-docx (the extra `docx`)."""

from __future__ import annotations

import io
from typing import Any

from zerosum.errors import BadInput
from zerosum.kernel.names import visible
from zerosum.report.document import Document, Table, Text

_STYLES = {"points": "List Bullet", "promise": "Intense Quote", "warning": "Intense Quote"}


def word(documents: tuple[Document, ...]) -> bytes:
    """Word file of documents, one after the other, each on a new page. Charts are left out: tables have their numbers.

    Parameters
    ----------
    documents : tuple of Document
        The documents.

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
    file: Any = WordDocument()
    page = file.sections[0]
    page.page_width, page.page_height = Cm(21), Cm(29.7)
    page.left_margin = page.right_margin = page.top_margin = page.bottom_margin = Cm(2)
    file.styles["Normal"].font.name, file.styles["Normal"].font.size = "Calibri", Pt(10)
    for at, document in enumerate(documents):
        if at:
            file.add_page_break()
        file.add_heading(visible(document.title), 1)
        file.add_paragraph(visible(document.summary))
        for section in document.sections:
            file.add_heading(visible(section.heading), 2)
            for block in section.blocks:
                if isinstance(block, Text):
                    for sentence in block.sentences:
                        file.add_paragraph(visible(sentence), style=_STYLES.get(block.tone))
                elif isinstance(block, Table):
                    _table(file, block)
        file.add_paragraph(f"Written {document.written}. Plan {document.plan_digest}. The signed page is the original.")
    buffer = io.BytesIO()
    file.save(buffer)
    return buffer.getvalue()


def _table(file: Any, table: Table) -> None:
    """Add a table with its title; headings are bold."""
    caption = file.add_paragraph()
    caption.paragraph_format.keep_with_next = True
    caption.add_run(visible(table.title)).bold = True
    grid = file.add_table(rows=0, cols=len(table.heading), style="Light Grid Accent 1")
    for at, row in enumerate([table.heading, *table.rows]):
        for cell, text in zip(grid.add_row().cells, row, strict=True):
            cell.paragraphs[0].add_run(visible(text)).bold = at == 0
