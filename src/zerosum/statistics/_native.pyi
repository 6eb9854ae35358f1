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
def kind(wanted: str | None = None, /) -> str: ...
