from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.noise_table import noise_table

import fedcalib as fc

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "noise.md"


def test_the_page_is_what_the_command_prints():
    printed = subprocess.run(
        [sys.executable, "-m", "benchmarks.noise_table"],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PAGE.parents[2] / "src")},
    ).stdout
    assert printed.strip() in PAGE.read_text()


@pytest.mark.parametrize(("steps", "worse"), [(1, 1.2), (12, 1.105), (30, 1.1)])
@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_sampled_releases_pay_little_over_the_best_known_accountant(steps, worse, epsilon):
    import dp_accounting as dpa
    from dp_accounting.pld import PLDAccountant

    def best_known(multiplier):
        accountant = PLDAccountant(value_discretization_interval=1e-3)
        accountant.compose(dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(multiplier)), steps)
        return accountant.get_epsilon(1e-5)

    [row] = noise_table((steps,), (0.1,), (epsilon,))
    assert best_known(row.multiplier) < epsilon
    assert best_known(row.multiplier / worse) > epsilon


def test_the_table_is_what_the_model_adds():
    for row in noise_table((1, 12), (0.1, 1.0), (1.0, 8.0)):
        drawn = fc.Everyone() if row.rate == 1 else fc.Poisson(row.rate)
        cohort = drawn.cohort(1000)
        plan = fc.method.Plan.of(fc.FedBin(rounds=row.steps, clip=3.0), fc.Schema(2, 1000))
        model = fc.UserGaussian(row.epsilon, row.delta)
        event = model.mechanism(plan.queries[0], plan, cohort, drawn).event(plan.queries[0], cohort)
        assert event.multiplier == pytest.approx(row.multiplier, rel=1e-6)
