"""The page on speed says what its files say, and every contender of ours fits."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.calibration_speed import cells, contenders, data, report

OURS = [contender for contender in contenders.ALL if contender.name.startswith("fedcalib")]


def test_the_page_is_written_from_the_files() -> None:
    assert (report.HERE / "README.md").read_text() == report.page()


@pytest.mark.parametrize("contender", OURS, ids=lambda contender: contender.name)
def test_every_contender_of_ours_fits(contender: contenders.Contender) -> None:
    given = data.make(4, 3000)
    probs = contender.fit(given)(given.fresh)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-9)
    before, after = (
        -np.log(np.maximum(p, 1e-12))[np.arange(3000), given.fresh.labels].mean() for p in (given.fresh.probs, probs)
    )
    assert after < before


def test_cells_name_what_they_allow() -> None:
    assert {kind for kind, _ in cells.METHODS.values()} == set(cells.ALLOWED)
    assert all(len(half) == 5000 for half in cells.halves()[1:])
