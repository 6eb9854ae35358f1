"""Type names for arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Array = Any  # an array of any array-API namespace (NumPy, PyTorch, CuPy), or a memory map
