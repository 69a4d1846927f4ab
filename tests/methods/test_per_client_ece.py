"""The mean of clients' own errors: the mean that a loop over clients gives, with an interval that covers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import metrics
from fedcalib.errors import InputError
from tests.contract.subjects import federation


def by_hand(data: fc.Federation, fewest: int = 10) -> np.ndarray:
    return np.array([metrics.ece(held.probs, held.labels) for held in data.clients() if len(held) >= fewest])


@pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg()], ids=repr)
@pytest.mark.parametrize("classes", [2, 4])
def test_it_is_the_mean_of_a_loop_over_clients(classes: int, privacy: fc.privacy.Privacy) -> None:
    data = federation(classes, clients=12, records=900)
    found = fc.run(fc.PerClientECE(), fc.InProcess(data), privacy).artifact
    errors = by_hand(data)
    assert found.mean is not None
    assert found.mean.value == pytest.approx(errors.mean(), abs=1e-6)
    assert found.spread == pytest.approx(errors.std(), abs=1e-6)
    assert found.mean.low < found.mean.value < found.mean.high


def test_it_sees_what_the_whole_hides() -> None:
    """Two kinds of clients, too sure and not sure enough, that together are calibrated."""
    rng = np.random.default_rng(0)

    def client(chance: float) -> fc.Records:
        right = rng.random(400) < chance
        return fc.Records.of_scores(np.full(400, 0.7), right.astype(int))

    data = fc.Federation.of([client(chance) for chance in (0.5, 0.9) * 20])
    whole = fc.run(fc.FederatedMetrics(), fc.InProcess(data), fc.SecAgg()).artifact
    apart = fc.run(fc.PerClientECE(), fc.InProcess(data), fc.SecAgg()).artifact
    assert whole.ece is not None
    assert apart.mean is not None
    assert whole.ece.value < 0.03
    assert apart.mean.value == pytest.approx(0.2, abs=0.03)


def test_intervals_cover_under_noise() -> None:
    """Clients are drawn anew each time: chance among clients and privacy noise both have to be in the interval."""
    rng = np.random.default_rng(1)
    wide = np.array([0.3, 0.9])

    def drawn() -> fc.Federation:
        chances = rng.choice(wide, 400)
        labels = (rng.random((400, 40)) < chances[:, None]).astype(int)
        return fc.Federation.grouped(
            fc.Records.of_scores(np.full(16_000, 0.7), labels.reshape(-1)), np.repeat(np.arange(400), 40), 400
        )

    truth = float(np.mean([by_hand(drawn()).mean() for _ in range(20)]))
    covered = 0
    for seed in range(100):
        found = fc.run(
            fc.PerClientECE(), fc.InProcess(drawn()), fc.UserGaussian(2.0, 1e-5), randomness=fc.Simulated(seed)
        ).artifact
        assert found.mean is not None
        covered += found.mean.low <= truth <= found.mean.high
    assert 88 <= covered < 100


def test_few_clients_or_records_say_nothing_and_why(tmp_path: Path) -> None:
    small = fc.Federation.of([fc.Records.of_scores([0.5, 0.6], [0, 1])] * 8)
    for data, privacy in ((small, fc.SecAgg()), (federation(3), fc.UserGaussian(0.1, 1e-5))):
        found = fc.run(fc.PerClientECE(), fc.InProcess(data), privacy, randomness=fc.Simulated(0)).artifact
        assert found.to_json() == {"mean": None, "spread": None}
        assert found.warnings
        assert fc.load(found.save(tmp_path / "errors.json")) == found


@pytest.mark.parametrize("wrong", [{"bins": 0}, {"fewest": 0}])
def test_settings_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError):
        fc.PerClientECE(**wrong)
