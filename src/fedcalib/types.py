"""Type aliases for the arrays that pass through the package."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]
Ints: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
Bools: TypeAlias = NDArray[np.bool_]
Array: TypeAlias = NDArray[Any]
