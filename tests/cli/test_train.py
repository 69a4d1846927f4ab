"""`fedcalib train`: from inputs to a model, a repaired head, and scores that the other commands go on with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from tests.cli.conftest import Shell


@pytest.fixture
def points(home: Path) -> Path:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(1500, 6))
    labels = (inputs @ rng.normal(size=(6, 3)) * 2 + rng.gumbel(size=(1500, 3))).argmax(axis=1)
    np.savez(
        home / "points.npz",
        inputs=inputs,
        labels=labels,
        site=np.array(["a", "b", "c", "d"])[rng.integers(4, size=1500)],
    )
    return home / "points.npz"


def test_train_repair_calibrate_evaluate_with_one_ledger(points: Path, shell: Shell) -> None:
    assert shell("ledger", "limit", "book.json", "default", "--epsilon", 30, "--delta", "0.001").code == 0
    done = shell(
        "train", points, "--clients", 60, "--beta", 0.5, "--rounds", 4, "--epochs", 2, "--rate", 0.2, "--repair",
        "--privacy", "user", "--epsilon", 20, "--delta", 1e-5, "--clip", 30, "--update-clip", 2, "--simulate-seed", 1,
        "--classes", 3,
        "--ledger", "book.json", "--out", "model", "--format", "json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["privacy"]["epsilon"] == 20
    assert done.json["repaired"]
    head = fc.load("model/head.json")
    assert head.matrix.shape == (3, 6)
    measured = shell("evaluate", "model/scored.parquet", "--privacy", "secagg", "--format", "json")
    assert measured.code == 0, measured.err
    assert measured.json["metrics"]["accuracy"]["value"] > 0.4, "by chance it would be a third"
    fitted = shell(
        "calibrate", "model/scored.parquet", "--method", "one-shot-temperature", "--privacy", "user", "--epsilon", 5,
        "--delta", 1e-5, "--clip", 10, "--holdout", 0, "--simulate-seed", 1, "--ledger", "book.json",
        "--out", "calibrated",
    )  # fmt: skip
    assert fitted.code == 0, fitted.err


def test_sites_of_the_file_are_clients(points: Path, shell: Shell) -> None:
    done = shell("train", points, "--rounds", 3, "--rate", 0.3, "--out", "model", "--format", "json")
    assert done.code == 0, done.err
    scored = fc.read("model/scored.parquet", site="site")
    assert len(scored) == 4
    assert (scored.records.logits.argmax(axis=1) == scored.records.labels).mean() > 0.7
    model = fc.load("model/model.json")
    assert len(model.weights) == done.json["weights"] == 21


def test_a_directory_whose_data_changed_is_trained_anew(shell: Shell, home: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(255, size=(120, 28, 28), dtype=np.uint8), np.arange(120) % 3

    def written(labels: np.ndarray) -> None:
        half = slice(None, 80), slice(80, None)
        parts = {f"{name}_{part}": array[rows] for part, rows in zip(("train", "test"), half, strict=True)
                 for name, array in (("x", images), ("y", labels))}  # fmt: skip
        np.savez(home / "sets" / "mnist.npz", **parts)

    (home / "sets").mkdir()
    words = ("train", home / "sets", "--data", "mnist", "--clients", 4, "--rounds", 1, "--format", "json")
    written(labels)
    assert shell(*words, "--out", "first").code == 0
    again = shell(*words, "--out", "again")
    assert "nobody was asked again" in again.err
    written(2 - labels)
    changed = shell(*words, "--out", "changed")
    assert changed.code == 0, changed.err
    assert "nobody was asked again" not in changed.err
    first, same, other = ((home / name / "model.json").read_bytes() for name in ("first", "again", "changed"))
    assert first == same
    assert first != other


def test_a_repair_that_will_be_refused_costs_nothing(points: Path, shell: Shell, home: Path) -> None:
    said = shell(
        "train", points, "--privacy", "user", "--epsilon", 8, "--delta", 1e-5, "--update-clip", 1, "--repair",
        "--classes", 3, "--ledger", "book.db", "--out", "model",
    )  # fmt: skip
    assert said.code == 4
    assert "needs a clip" in said.err
    assert not (home / "book.db").exists()
    assert not (home / "model").exists()


def test_mistakes_are_explained(points: Path, shell: Shell, home: Path) -> None:
    assert "found 'mlp'" in shell("train", points, "--network", "mlp").err
    assert "Expected pictures" in shell("train", points, "--network", "conv").err
    assert "npz file" in shell("train", home).err
    assert "found 'imagenet'" in shell("train", home, "--data", "imagenet").err
    np.savez(home / "bare.npz", inputs=np.zeros((9, 2)), labels=np.arange(9) % 2)
    assert "--clients" in shell("train", home / "bare.npz").err
    assert shell("train", home / "bare.npz").code == 2


@pytest.mark.parametrize(
    ("change", "flags", "said"),
    [
        ({"inputs": np.where(np.arange(18).reshape(9, 2) == 7, np.nan, 1.0)}, (), "NaN or infinity first in row 3"),
        ({"labels": np.array([0, 1, 0.5] * 3)}, (), "found 0.5 in row 2"),
        ({"labels": np.array(["cat", "dog", "cow"] * 3)}, (), "found words such as 'cat'"),
        ({"labels": np.array([0, 1, -1] * 3)}, (), "found -1 in row 2"),
        ({}, ("--clients", 2000), "at most as many clients as records, 9, found --clients 2000"),
        ({}, ("--beta", 0.1), "Expected --clients with --beta"),
    ],
    ids=["nan", "fraction", "words", "negative", "clients", "beta"],
)
def test_bad_input_is_one_message_and_writes_nothing(
    change: dict, flags: tuple, said: str, shell: Shell, home: Path
) -> None:
    good = {"inputs": np.ones((9, 2)), "labels": np.arange(9) % 3}
    np.savez(home / "small.npz", **{**good, **change})
    done = shell("train", home / "small.npz", *(flags or ("--clients", 3)), "--out", "model")
    assert done.code == 2
    assert said in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert "bug" not in done.err
    assert not (home / "model").exists()


def test_rounds_are_logged_with_loss_accuracy_and_updates(points: Path, shell: Shell) -> None:
    done = shell("train", points, "--rounds", 3, "--rate", 0.3, "--out", "model", "--format", "json")
    rounds = done.json["rounds"]
    assert [one["number"] for one in rounds] == [0, 1, 2, 3]
    assert rounds[0]["update"] == 0
    assert rounds[0]["loss"] == pytest.approx(np.log(3))
    assert rounds[3]["loss"] < 0.8
    scored = fc.read("model/scored.parquet", site="site").records
    assert rounds[3]["accuracy"] == pytest.approx((scored.logits.argmax(axis=1) == scored.labels).mean())
    assert done.json["warnings"] == []


def test_divergence_is_told(points: Path, shell: Shell, home: Path) -> None:
    with np.load(points) as file:
        np.savez(home / "large.npz", inputs=1000 * file["inputs"], labels=file["labels"], site=file["site"])
    done = shell("train", home / "large.npz", "--rounds", 3, "--rate", 3, "--update-clip", 1e4, "--out", "model")
    assert done.code == 0
    assert "Training diverged: the held-out log loss was" in " ".join(done.err.split())


def test_private_rounds_log_no_exact_figures(points: Path, shell: Shell) -> None:
    done = shell(
        "train", points, "--classes", 3, "--rounds", 3, "--privacy", "user", "--epsilon", 8, "--delta", 1e-5,
        "--update-clip", 1, "--out", "model", "--format", "json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert all(one["loss"] is None and one["accuracy"] is None for one in done.json["rounds"])
    assert done.json["rounds"][3]["update"] > 0
