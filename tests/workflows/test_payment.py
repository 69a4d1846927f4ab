"""Payment: nothing is debited before every phase is agreed, and every stated epsilon is what was debited."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib import registry
from fedcalib.accounting.ledger import Ledger
from fedcalib.errors import BudgetError, FedcalibError, InputError, RefusedError, TooFewClients
from fedcalib.training import SoftmaxRegression
from fedcalib.transcript import Transcript
from fedcalib.workflows import calibrate, compare, evaluate, monitor, train
from fedcalib.workflows.comparison import ByClient
from fedcalib.workflows.session import Data
from tests.snapshots import data

METHODS = {"platt": fc.PlattScaling(), "bins": fc.FedBin(bins=4), "isotonic": fc.IsotonicBuckets()}
TRAINING = fc.methods.FedAvg(SoftmaxRegression(3, 2), rounds=2)
LIMIT = 3
DAYS = {"start": 0, "until": 19}  # of the frame


def frame(sites: int = 4, n: int = 600) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    score = rng.random(n)
    return pd.DataFrame(
        {
            "site": [f"site-{k}" for k in np.arange(n) % sites],
            "day": np.arange(n) // (n // 20),
            "score": score,
            "label": (rng.random(n) < score**2).astype(int),
            "patient": np.arange(n) // 2,
        }
    )


def points(n: int = 200) -> fc.Federation:
    rng = np.random.default_rng(0)
    records = fc.Records.of_probs(np.full((n, 2), 0.5), np.arange(n) % 2, inputs=rng.normal(size=(n, 3)))
    return fc.Federation.grouped(records, np.arange(n) % 4)


def scored() -> fc.Federation:
    table = frame()
    return fc.Federation.by_site(fc.Records.of_scores(table.score, table.label), table.site)


def options(folder: Path) -> dict[str, Any]:
    return {"state": folder / "state", "ledger": folder / "ledger.db", "account": "patients"}


def debited(folder: Path) -> float:
    return float(Ledger(folder / "ledger.db").account("patients").epsilon) if (folder / "ledger.db").exists() else 0.0


class Killed(BaseException):
    """A process that is ended."""


@contextmanager
def killed_at(answer: int) -> Iterator[None]:
    """End the process where its n-th answer would be written, so that its query was sent for nothing."""
    note, count = Transcript.note_answer, iter(range(1000))

    def dying(self: Transcript, *arguments: Any) -> Any:
        if next(count) == answer:
            raise Killed
        return note(self, *arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Transcript, "note_answer", dying)
        yield


DISTRIBUTED = fc.DistributedDP(LIMIT)
USER = fc.UserGaussian(LIMIT, 1e-5)
REFUSED: dict[str, tuple[type[FedcalibError], Callable[..., Any]]] = {
    "a repair without a clip": (RefusedError, lambda **told: train(points(), TRAINING, USER, repair=True, **told)),
    "two sites": (TooFewClients, lambda **told: calibrate(frame(2), fc.FedBin(), DISTRIBUTED, **told)),
    "two sites, measured": (TooFewClients, lambda **told: evaluate(frame(2), DISTRIBUTED, **told)),
    "two sites by week": (TooFewClients, lambda **told: monitor(frame(2), DISTRIBUTED, **DAYS, **told)),
    "four sites on two sides": (  # however the coins fall, one side has fewer than three
        FedcalibError,
        lambda **told: compare(frame(4), METHODS, DISTRIBUTED, holdout=ByClient(0.5), spend=True, **told),
    ),
    "more queries than cohorts": (
        InputError,
        lambda **told: calibrate(
            frame(12), fc.FedBin(rounds=3), DISTRIBUTED, participation=fc.Disjoint(2), holdout=0, **told
        ),
    ),
    "a column that is missing": (
        InputError,
        lambda **told: calibrate(frame(), fc.methods.DomainTemperatures(3), DISTRIBUTED, **told),
    ),
    "inputs that are missing": (InputError, lambda **told: train(scored(), TRAINING, USER, **told)),
    "cohorts of two": (
        TooFewClients,
        lambda **told: calibrate(
            frame(4), fc.FedBin(rounds=2), DISTRIBUTED, participation=fc.Disjoint(2), holdout=0, **told
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_comes_before_anything_is_paid(name: str, tmp_path: Path) -> None:
    error, command = REFUSED[name]
    with pytest.raises(error):
        command(**options(tmp_path))
    assert debited(tmp_path) == 0


@pytest.mark.parametrize("model", [fc.UserGaussian(LIMIT, 1e-5), fc.LocalDP(LIMIT)], ids=repr)
def test_no_method_is_paid_and_then_refused(model: fc.privacy.Privacy, tmp_path: Path) -> None:
    """Every method of the command line on four classes, which many of them do not serve."""
    refused = 0
    for row in registry.choices("method"):
        told = options(tmp_path / row.word)
        (tmp_path / row.word).mkdir()
        try:
            calibrate(data.federation(4), row.build({}), model, holdout=0, **told)
        except FedcalibError:
            refused += 1
            assert debited(tmp_path / row.word) == 0, row.word
    assert refused > 5


def spent(done: Any) -> float:
    """The epsilon that a result states, as a number and in words."""
    document = done.to_json()
    privacy = document.get("privacy", document)  # a comparison states both on its own
    said = [float(found) for found in re.findall(r"epsilon = (\d+(?:\.\d+)?)", privacy["statement"])]
    assert any(value == pytest.approx(privacy["epsilon"], rel=1e-5) for value in said)
    return float(privacy["epsilon"])


COMMANDS: dict[str, Callable[..., Any]] = {
    "calibrate": lambda **told: calibrate(frame(), fc.FedBin(bins=4, rounds=2), DISTRIBUTED, **told),
    "evaluate": lambda **told: evaluate(frame(), DISTRIBUTED, **told),
    "evaluate-sites": lambda **told: evaluate(frame(), fc.SourceLaplace(LIMIT), **told),
    "compare": lambda **told: compare(frame(), METHODS, DISTRIBUTED, spend=True, **told),
    "monitor": lambda **told: monitor(frame(), DISTRIBUTED, site="site", **DAYS, **told),
    "train": lambda **told: train(points(), TRAINING, fc.UserGaussian(LIMIT, 1e-5, clip=10), repair=True, **told),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_stated_epsilon_is_what_was_debited(name: str, tmp_path: Path) -> None:
    """Three times the command is ended between a query and its answer, at another place each time."""
    for answer in (0, 0, 0) if name == "evaluate" else (0, 1, 0):  # it has one query only
        with killed_at(answer):
            COMMANDS[name](**options(tmp_path))
    done = COMMANDS[name](**options(tmp_path))
    assert debited(tmp_path) > LIMIT + 0.1
    assert spent(done) == pytest.approx(debited(tmp_path), abs=1e-5)
    again = COMMANDS[name](**options(tmp_path))
    assert spent(again) == pytest.approx(spent(done)), "a replay states the same"
    assert debited(tmp_path) == pytest.approx(spent(done), abs=1e-5), "and pays nothing"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_finished_command_is_replayed_at_the_limit(name: str, tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").limit("patients", LIMIT, 1e-5)
    first = COMMANDS[name](**options(tmp_path))
    assert debited(tmp_path) == pytest.approx(LIMIT)
    assert COMMANDS[name](**options(tmp_path)).to_json() != {}
    assert spent(first) == pytest.approx(LIMIT)
    assert debited(tmp_path) == pytest.approx(LIMIT)


def limited(folder: Path, name: str, answer: int) -> Any:
    """A command that was ended at an answer, resumed where the account holds nothing more."""
    Ledger(folder / "ledger.db").limit("patients", LIMIT, 1e-5)
    with killed_at(answer):
        COMMANDS[name](**options(folder))
    return COMMANDS[name](**options(folder))


def test_a_fit_that_cannot_be_paid_again_says_what_was_released(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match=r"resumption: epsilon = 3 is paid, and 1 answers were released before"):
        limited(tmp_path, "calibrate", 1)
    assert debited(tmp_path) == pytest.approx(LIMIT), "a refused repeat is not debited"


def test_a_calibrator_that_is_there_is_given(tmp_path: Path) -> None:
    done = limited(tmp_path, "calibrate", 2)
    assert isinstance(done.calibrator, fc.Calibrator)
    assert (done.before, done.after) == (None, None)
    assert any("not measured" in text and "resumption" in text for text in done.warnings)
    assert spent(done) == pytest.approx(LIMIT)
    assert set(done.save(tmp_path / "out")) >= {"calibrator", "result", "report"}


def test_methods_that_are_measured_are_compared(tmp_path: Path) -> None:
    done = limited(tmp_path, "compare", 2)  # the base and the first fit are answered, the second fit is not
    assert {row.method for row in done.rows} == set(METHODS) - {"bins"}
    assert "resumption" in done.refused["bins"]
    assert debited(tmp_path) == pytest.approx(LIMIT)


def test_windows_that_were_measured_are_given(tmp_path: Path) -> None:
    done = limited(tmp_path, "monitor", 2)
    assert [window.label for window in done.windows] == ["week 1", "week 2"]
    assert any("From week 3 on" in text and "resumption" in text for text in done.warnings)
    assert debited(tmp_path) == pytest.approx(LIMIT)


def test_a_network_that_is_trained_is_given(tmp_path: Path) -> None:
    done = limited(tmp_path, "train", 2)
    assert done.head is None
    assert "not repaired" in done.warnings[0]
    assert "resumption" in done.warnings[0]


def test_state_is_keyed_on_all_that_was_read() -> None:
    table = frame()
    federation = scored()
    columns = fc.data.Columns(site="site", unit="patient")
    changed = table.copy()
    changed.loc[:1, "label"] = 1 - changed.loc[:1, "label"]
    for row in (0, 1):  # one record of each patient is kept: a change of either counts
        one = table.copy()
        one.loc[row, "score"] /= 2
        assert Data.of(one, columns).fingerprint() != Data.of(table, columns).fingerprint()
    other = fc.Federation.by_site(fc.Records.of_scores(changed.score, changed.label), changed.site)
    renamed = fc.Federation(federation.records, federation.offsets, ("a", "b", "c", "d"))
    for one in (other, renamed):
        assert Data.of(one).fingerprint() != Data.of(federation).fingerprint()
        assert Data.of(fc.InProcess(one)).fingerprint() != Data.of(fc.InProcess(federation)).fingerprint()
    assert Data.of(table.copy(), columns).fingerprint() == Data.of(table, columns).fingerprint()
