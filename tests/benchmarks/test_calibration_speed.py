"""The page on speed says what its files say, and every contender of ours fits."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.calibration_speed import cells, contenders, data, quality, report

import fedcalib as fc

OURS = [contender for contender in contenders.ALL if contender.name.startswith("fedcalib")]


def test_the_page_is_written_from_the_files() -> None:
    assert (report.HERE / "README.md").read_text() == report.page()
    assert (report.HERE / "annex.md").read_text() == report.annex()


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


def test_real_logits_are_averaged_over_what_came_to_an_end() -> None:
    first, peer = np.array([[0.1, 1.0], [0.3, 2.0], [0.2, 3.0]]), np.array([[0.2, 2.0], [np.nan, np.nan], [0.4, 2.0]])
    assert quality.row("net_logits", quality.BINNERS[0], first, first)[2:] == [3, "0.20000", "2.0000", "-"]
    assert quality.row("net_logits", quality.BINNERS[1], peer, first)[2:] == [2, "0.30000", "2.0000", 1]


def test_halves_do_not_overlap_and_differ_by_seed() -> None:
    logits = np.arange(20_000.0).reshape(10_000, 2)
    records = fc.Records.of_logits(logits, np.zeros(10_000, dtype=np.int64))
    one, other = quality.split(records, 0), quality.split(records, 1)
    both = np.concatenate([one.logits, one.fresh.logits])
    np.testing.assert_array_equal(both[np.argsort(both[:, 0])], logits)
    assert not np.array_equal(one.logits, other.logits)
