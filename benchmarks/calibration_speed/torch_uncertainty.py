"""torch-uncertainty's calibrators without the rest of it, which wants torchvision, timm and lightning.

Its files are run as they are; only the two `__init__` modules above them are passed over. Install it without what it
depends on: `pip install --no-deps torch-uncertainty tqdm`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE, _FOLDER = "torch_uncertainty", "post_processing"


def calibration() -> Any:
    """Import the subpackage that holds the calibrators."""
    if _PACKAGE not in sys.modules:
        found = find_spec(_PACKAGE)
        if found is None or found.submodule_search_locations is None:
            raise ModuleNotFoundError("No module named 'torch_uncertainty'")
        root = Path(found.submodule_search_locations[0])
        for name, path in ((_PACKAGE, root), (f"{_PACKAGE}.{_FOLDER}", root / _FOLDER)):
            package = ModuleType(name)
            package.__path__ = [str(path)]
            sys.modules[name] = package
        abstract = import_module(f"{_PACKAGE}.{_FOLDER}.abstract")
        sys.modules[f"{_PACKAGE}.{_FOLDER}"].PostProcessing = abstract.PostProcessing  # type: ignore[attr-defined]
    return import_module(f"{_PACKAGE}.{_FOLDER}.calibration")
