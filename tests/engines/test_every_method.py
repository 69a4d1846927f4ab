"""The tests of engines run every registered method."""

from __future__ import annotations

from pathlib import Path

from fedcalib import registry
from tests.engines.federation import (
    CLASSES,
    SiteBySite,
    check_law,
    methods,
    noise,
    pooled,
    write_sites,
)


def test_every_registered_method_is_run() -> None:
    run = {type(method).__name__ for classes in CLASSES for method in methods(classes)}
    assert run == {row.name for row in registry.ROWS if row.kind == "method"}


def test_the_law_of_noise_holds_site_by_site(tmp_path: Path) -> None:
    """The check that engines go through, on sites in this process."""
    write_sites(tmp_path)
    check_law(noise(SiteBySite(pooled(tmp_path))), tmp_path)
