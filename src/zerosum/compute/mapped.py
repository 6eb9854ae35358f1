"""Memory-mapped rows: blocks that were used leave the memory of the process."""

from __future__ import annotations

import mmap

import numpy as np


def release_pages(rows: object, first: int, last: int) -> None:
    """Release the memory of rows `first` to `last` of a memory-mapped array. They stay in the file.

    The system would release these pages only when other processes need memory; until then they count as memory of
    this process. No effect on other arrays. A later access reads the pages again. Of an array in the mode "c", changes
    are in memory only and would be lost: it is left alone.
    """
    mapping = getattr(rows, "_mmap", None)
    if not isinstance(rows, np.ndarray) or mapping is None or not hasattr(mapping, "madvise") or rows.ndim != 2:
        return
    if not rows.flags.c_contiguous or getattr(rows, "mode", "c") == "c":
        return
    begin = rows.ctypes.data - np.frombuffer(mapping, np.uint8).ctypes.data
    start, end = begin + first * rows.strides[0], begin + last * rows.strides[0]
    # Whole pages only. The last page may hold rows of the next block, which releases it. The first page may hold rows
    # of the block before, which have been used: left alone, one page of each block would stay in memory.
    page = mmap.PAGESIZE
    start, end = start // page * page, end // page * page
    if end > start and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED, start, end - start)
