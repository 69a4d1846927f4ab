from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcalib.accounting.ledger import Ledger
from fedcalib.accounting.spending import Spending
from fedcalib.federation import Federation
from fedcalib.records import Records
from fedcalib.workflows.budget import PARALLEL, SEQUENTIAL, as_simulation, for_units, shares, together
from fedcalib.workflows.session import State
from tests.cli.conftest import Shell


def spent(epsilon: float | None, delta: float | None = 0.0, unit: str = "record") -> Spending:
    return Spending("Some", unit, epsilon, delta, "add/remove", False, "A promise.")


@given(st.floats(1e-3, 100), st.floats(0, 1e-3), st.sampled_from([PARALLEL, SEQUENTIAL]))
def test_the_phases_use_the_whole_budget_and_no_more(epsilon: float, delta: float, parts: object) -> None:
    fit = spent(epsilon * parts.calibration, delta * parts.calibration)  # type: ignore[attr-defined]
    measure = spent(epsilon * parts.measurement, delta * parts.measurement)  # type: ignore[attr-defined]
    total = together(fit, [measure], parts.parallel)  # type: ignore[attr-defined]
    assert total.epsilon == pytest.approx(epsilon)
    assert total.delta == pytest.approx(delta)


def test_only_held_out_records_compose_in_parallel() -> None:
    assert shares("record", held_out=True) is PARALLEL
    assert shares("record", held_out=False) is SEQUENTIAL
    assert shares("client", held_out=True) is SEQUENTIAL
    assert shares("client", held_out=False) is SEQUENTIAL


def test_questions_that_were_asked_again_show_in_the_total() -> None:
    assert together(spent(1.5), [spent(0.5), spent(0.5)], parallel=True).epsilon == 1.5
    assert together(spent(1.0), [spent(0.75), spent(0.5)], parallel=True).epsilon == 1.25
    assert together(spent(1.0), [spent(0.75), spent(0.5)], parallel=False).epsilon == 2.25


def test_models_that_promise_nothing_add_up_to_nothing() -> None:
    assert together(spent(None, None), [spent(None, None)] * 2, parallel=True).epsilon is None
    assert for_units(spent(None, None), "patient") == spent(None, None)
    assert "'patient'" in for_units(spent(1.0), "patient").statement
    assert "at k sites, epsilon is k times as large" in for_units(spent(1.0), "patient").statement


def test_a_simulation_says_so_first_and_once() -> None:
    marked = as_simulation(spent(1.0))
    total = together(marked, [marked, marked], parallel=False)
    assert total.statement.startswith("Simulation: not private.")
    assert total.statement.count("not private") == 1
    assert as_simulation(marked) == marked


def test_removing_a_record_moves_no_other_between_the_sides() -> None:
    """A coin depends on the secret and on the record alone."""
    scores = np.linspace(0, 1, 500)
    sides = {}
    for n in (500, 499):
        records = Records.of_scores(scores[:n], np.arange(n) % 2)
        fitted, held = State(None, 7).split(Federation.of([records]), 0.3)
        assert len(fitted.records) + len(held.records) == n
        sides[n] = set(held.records.score.tolist())
    assert sides[500] - {1.0} == sides[499]
    assert 100 < len(sides[500]) < 200


@pytest.mark.parametrize(
    ("extra", "epsilons"),
    [
        (["--privacy", "distributed"], [2.0, 2.0]),
        (["--privacy", "laplace"], [2.0, 2.0]),
        (["--privacy", "distributed", "--holdout", "0"], [2.0]),
        (["--privacy", "distributed", "--test", "other.csv"], [1.0, 1.0]),
        (["--privacy", "user", "--delta", "1e-5", "--clip", "10"], [1.0, 1.0]),
    ],
)
def test_the_total_of_a_command_is_its_epsilon(
    shell: Shell, scores: Path, extra: list[str], epsilons: list[float]
) -> None:
    (scores.parent / "other.csv").write_text("".join(scores.read_text().splitlines(keepends=True)[:-1]))
    words = ("calibrate", scores, "--method", "fed-bin", "--epsilon", "2", "--dry-run", "--format", "json")
    document = shell(*words, *extra).json
    assert [phase["epsilon"] for phase in document["phases"]] == pytest.approx(epsilons)
    assert document["privacy"]["epsilon"] == pytest.approx(2.0)
    assert document["privacy"]["delta"] == pytest.approx(1e-5 if "user" in extra else 0.0)


def test_a_ledger_is_debited_the_total_once_and_refuses_past_its_limit(shell: Shell, scores: Path) -> None:
    ledger = Ledger("ledger.db")
    ledger.limit("hospital", 1.5)
    words = ("--privacy", "distributed", "--ledger", "ledger.db", "--account", "hospital", "--format", "json")
    calibrate = ("calibrate", scores, "--method", "fed-bin", "--out", "out", "--epsilon", "1", *words)
    assert shell(*calibrate).code == 0
    assert shell(*calibrate).json["replayed"] is True
    assert float(ledger.account("hospital").epsilon) == 1.0, "a replay has paid already"
    refused = shell("evaluate", scores, "--epsilon", "0.6", *words)
    assert refused.code == 3
    assert "hospital" in refused.json["error"]
    assert refused.json["exit_code"] == 3
    assert shell("evaluate", scores, "--epsilon", "0.5", *words).code == 0
    assert float(ledger.account("hospital").epsilon) == 1.5


def test_a_command_whose_state_was_lost_pays_again(shell: Shell, scores: Path) -> None:
    words = ("evaluate", scores, "--privacy", "distributed", "--epsilon", "1", "--ledger", "ledger.db")
    assert shell(*words, "--state", "one").code == 0
    assert shell(*words, "--state", "two").code == 0
    assert float(Ledger("ledger.db").account("default").epsilon) == 2.0


def test_a_ledger_that_counts_nothing_says_so(shell: Shell, scores: Path) -> None:
    said = shell("evaluate", scores, "--privacy", "secagg", "--ledger", "budget.db")
    assert said.code == 0
    assert "Nothing was debited" in said.err
    noisy = shell("evaluate", scores, "--epsilon", "1", "--ledger", "budget.db")
    assert "Nothing was debited" not in noisy.err
