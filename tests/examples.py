"""How many examples a property tries: half of what is written in `make test`, ten times that in `make properties`."""

from __future__ import annotations

import os
from typing import Final

SEARCH: Final = "FEDCALIB_PROPERTIES" in os.environ  # other examples each time, and many


def examples(number: int) -> int:
    """The number of examples of a property that deserves `number` of them."""
    return 10 * number if SEARCH else max(number // 2, 1)
