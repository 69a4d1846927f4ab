"""A seed of splits leaves a release private; only an explicit seed of simulated noise does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import fedcalib as fc
from fedcalib.accounting.ledger import Ledger
from fedcalib.errors import InputError
from fedcalib.workflows import calibrate, compare, evaluate
from tests.cli.conftest import Shell, overconfident

PRIVATE = fc.DistributedDP(epsilon=2.0)


@pytest.fixture
def scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    overconfident(1200, 4, 0).assign(patient=[row // 3 for row in range(1200)]).to_csv("scores.csv", index=False)
    return tmp_path / "scores.csv"


def measured(done: Any) -> Any:
    return done.to_json()["before"]


def test_a_seed_of_splits_repeats_the_split_and_not_the_noise(scores: Path) -> None:
    exact = [calibrate(scores, fc.FedBin(), fc.Open(), split_seed=seed, unit="patient") for seed in (3, 3, 4)]
    assert measured(exact[0]) == measured(exact[1]) != measured(exact[2])
    noisy = [calibrate(scores, fc.FedBin(), PRIVATE, split_seed=3) for _ in range(2)]
    assert measured(noisy[0]) != measured(noisy[1])
    for done in noisy:
        assert not done.privacy.simulation
        assert "not private" not in done.privacy.statement
        assert "not private" not in done.files()["report.html"].decode()


def test_a_split_with_a_seed_is_recorded(scores: Path) -> None:
    assert calibrate(scores, fc.FedBin(), PRIVATE, split_seed=3).provenance["split_seed"] == 3


def test_simulated_noise_repeats_itself_and_warns(scores: Path) -> None:
    done = []
    for _ in range(2):
        with pytest.warns(UserWarning, match="simulation: not private"):
            done.append(calibrate(scores, fc.FedBin(), PRIVATE, simulate=3))
    assert measured(done[0]) == measured(done[1])
    assert done[0].privacy.simulation
    assert done[0].privacy.statement.startswith("Simulation: not private.")
    with pytest.warns(UserWarning, match="simulation: not private"):
        other = calibrate(scores, fc.FedBin(), PRIVATE, simulate=4, split_seed=1)
    with pytest.warns(UserWarning, match="simulation: not private"):
        again = calibrate(scores, fc.FedBin(), PRIVATE, simulate=5, split_seed=1)
    assert measured(other) != measured(again)


def test_a_comparison_that_spends_is_private_with_a_seed_of_splits(scores: Path) -> None:
    methods = {"fed-bin": fc.FedBin()}
    spent = [compare(scores, methods, PRIVATE, spend=True, split_seed=1) for _ in range(2)]
    assert [one.simulation for one in spent] == [False, False]
    assert spent[0].base.to_json() != spent[1].base.to_json()
    with pytest.warns(UserWarning, match="simulation: not private"):
        trial = compare(scores, methods, PRIVATE, spend=True, simulate=1)
    assert trial.simulation
    assert trial.statement.startswith("Simulation: not private.")


def test_a_seed_of_splits_pays_again_when_its_state_is_lost(scores: Path) -> None:
    """The name that the ledger knows comes from a secret, not from a seed that others may choose as well."""
    kept: dict[str, Any] = {"state": "state", "ledger": "ledger.db", "split_seed": 3}
    evaluate(scores, PRIVATE, **kept)
    evaluate(scores, PRIVATE, **kept)
    assert float(Ledger("ledger.db").account("default").epsilon) == 2.0
    shutil.rmtree("state")
    evaluate(scores, PRIVATE, **kept)
    assert float(Ledger("ledger.db").account("default").epsilon) == 4.0


def test_a_seed_alone_is_refused_by_workflows(scores: Path) -> None:
    options: dict[str, Any] = {"seed": 1}
    with pytest.raises(InputError, match=r"split_seed .* simulate .* found seed"):
        evaluate(scores, **options)


@pytest.mark.parametrize(
    "words",
    [
        ("calibrate", "scores.csv", "--method", "fed-bin", "--privacy", "open", "--out", "out"),
        ("evaluate", "scores.csv"),
        ("compare", "scores.csv"),
        ("monitor", "scores.csv"),
        ("train", "scores.csv"),
        ("audit", "--privacy", "laplace", "--epsilon", "1"),
        ("demo",),
    ],
)
def test_a_seed_alone_is_refused_by_commands(shell: Shell, words: tuple[str, ...]) -> None:
    said = shell(*words, "--seed", "1")
    assert said.code == 2
    assert "--split-seed" in said.err and "--simulate-seed" in said.err
    assert "--seed" not in shell(words[0], "--help").out.replace("--split-seed", "").replace("--simulate-seed", "")


def test_commands_warn_of_simulated_noise_only(shell: Shell, scores: Path) -> None:
    words = ("evaluate", scores, "--privacy", "distributed", "--epsilon", "1", "--format", "json")
    trial, release = shell(*words, "--simulate-seed", "1"), shell(*words, "--split-seed", "1")
    assert "simulation: not private" in trial.err
    assert trial.json["privacy"]["simulation"]
    assert "not private" not in release.err + release.out
    assert not release.json["privacy"]["simulation"]
