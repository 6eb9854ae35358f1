import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

def norms(
    rows: Floats, center: Floats | None, scale: Floats | None, lift: float, clip: float, columns: int, out: Floats, /
) -> None: ...
def column(
    rows: Floats, center: Floats | None, scale: Floats | None, lift: float, clip: float, columns: int, out: Floats, /
) -> None: ...
def scatter(
    rows: Floats, center: Floats | None, scale: Floats | None, lift: float, clip: float, columns: int, out: Floats, /
) -> None: ...
def unmixing(
    people: Floats,
    numbers: Floats,
    worth: Floats,
    signs: Floats,
    runs: NDArray[np.int64],
    chosen: NDArray[np.int32],
    shape: tuple[int, int, int, int],
    weights: tuple[float, float, float, float],
    out: Floats,
    /,
) -> None: ...
def interleave(columns: tuple[Floats, ...], first: int, out: Floats, /) -> None: ...
def kind(wanted: str | None = None, /) -> str: ...
