"""What every test may ask for."""

from __future__ import annotations

import gc
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: small products on many threads crawl on a busy machine

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# a busy machine is not a failure, and what one machine passes another passes; searches look elsewhere each time
SEARCHING = not {"FEDCALIB_PROPERTIES", "FEDCALIB_FUZZ"}.isdisjoint(os.environ)
EXAMPLES = 1000 if "FEDCALIB_PROPERTIES" in os.environ else 50  # as tests.examples, which is not on the path yet
settings.register_profile("fedcalib", deadline=None, derandomize=not SEARCHING, max_examples=EXAMPLES)
settings.load_profile("fedcalib")
if not SEARCHING and hasattr(providers, "_get_local_constants"):
    # Hypothesis also tries constants of the modules that are loaded, and which are depends on the tests that ran before
    providers._get_local_constants = lambda: providers._local_constants  # none yet


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with tests of more than ten seconds first, so that no worker begins a long one when the other is done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What is there for the whole session, most of a million objects, is looked through no more for what may go."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data that lies beside the repository."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("real data not found: this test reads ../shared/data, beside the repository")
    return folder
