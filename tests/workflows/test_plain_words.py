"""Sentences of reports: what was found, what it means and what to do next, without contradicting the figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib.accounting.spending import Spending
from fedcalib.metrics.intervals import Measured
from fedcalib.workflows import verdicts
from fedcalib.workflows.facts import meaning

ROOT = Path(__file__).resolve().parents[2]
WORST = (
    "One word an idea",
    "counts twice the one before",
    "what the dearest does",
    "the latest so many windows",
    "how badly calibrated the usual client",
    "no turn of the vote",
    "its middle and half its rises",
    "so the larger of the two counts",
    "Hold a method's conversation",
    "as many clients find the model too sharp",
)


@pytest.mark.parametrize("words", WORST)
def test_the_worst_sentences_are_gone(words: str) -> None:
    places = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.html"), *(ROOT / "docs").rglob("*.md")]
    assert not [path.name for path in places if words in " ".join(path.read_text(encoding="utf-8").split())]


def figures(ratio: tuple[float, float], slope: tuple[float, float] = (0.9, 1.1)) -> dict[str, Measured]:
    return {
        "observed_expected": Measured(sum(ratio) / 2, *ratio),
        "slope": Measured(sum(slope) / 2, *slope),
        "auc": Measured(0.8, 0.75, 0.85),
        "net_benefit": Measured(0.1, 0.05, 0.15),
    }


@pytest.mark.parametrize(
    ("ratio", "slope", "said", "repair"),
    [
        ((0.95, 1.05), (0.9, 1.1), "agree with what happened", False),
        ((0.80, 0.90), (0.9, 1.1), "are too high", True),
        ((1.10, 1.20), (0.9, 1.1), "are too low", True),
        ((0.95, 1.05), (0.5, 0.7), "High predictions are too high and low ones too low", True),
        ((0.95, 1.05), (1.5, 1.7), "High predictions are too low and low ones too high", True),
    ],
)
def test_the_verdict_follows_from_the_intervals(ratio: tuple[float, float], slope: tuple[float, float], said: str, repair: bool) -> None:  # fmt: skip  # noqa: E501
    found = figures(ratio, slope)
    assert said in verdicts.calibration(found)
    assert any("Recalibrate" in step for step in verdicts.after_evaluation(found)) == repair


def test_next_steps_follow_from_the_paired_verdict() -> None:
    assert "Do not use this calibrator" in verdicts.after_calibration({"ece": "worse"}, {})[0]
    assert "no clear gain" in verdicts.after_calibration({"ece": "no clear change"}, {})[0]
    assert "Apply calibrator.json" in verdicts.after_calibration({"ece": "better"}, figures((0.95, 1.05)))[0]
    guess = {**figures((0.95, 1.05)), "auc": Measured(0.5, 0.45, 0.55)}
    assert "cannot tell it from guessing" in verdicts.ranking(guess)[0]
    assert any("Do not use the ranking" in step for step in verdicts.after_evaluation(guess))
    harm = {**figures((0.95, 1.05)), "net_benefit": Measured(-0.2, -0.3, -0.1)}
    assert any("does harm" in step for step in verdicts.after_evaluation(harm))


def test_who_gains_and_who_loses_is_named() -> None:
    parts = {
        "north": {"calibration_in_the_large": Measured(-0.5, -0.6, -0.4)},
        "south": {"calibration_in_the_large": Measured(0.5, 0.4, 0.6)},
        "west": {"calibration_in_the_large": Measured(0.0, -0.1, 0.1)},
    }
    assert verdicts.between("site", parts) == (
        "By site, predictions are on average too high for north and too low for south.",
    )
    moved = [("a", Measured(0.2), Measured(0.1)), ("b", Measured(0.1), Measured(0.2)), ("c", None, None)]
    assert verdicts.movement(moved, "error") == ("The error fell at 1 of 2 sites: a. It did not fall at b.",)
    many = [(str(k), Measured(0.2), Measured(0.1)) for k in range(30)]
    assert "and 22 more" in verdicts.movement(many, "error")[0]


@pytest.mark.parametrize(
    ("model", "epsilon", "said"),
    [
        ("DistributedDP", 1.0, "2.72 times as likely with a record as without it. This is a strong protection."),
        ("DistributedDP", 3.0, "moderate"),
        ("DistributedDP", 1e6, "weak protection"),
        ("SecAgg", None, "only sums over all sites"),
        ("Open", None, "Nothing is hidden"),
    ],
)
def test_privacy_is_stated_in_plain_words(model: str, epsilon: float | None, said: str) -> None:
    spent = Spending(model, "record", epsilon, 0.0, "add/remove", False, "Statement.")
    assert said in meaning(spent)[0]


def test_no_sentence_of_a_report_is_long() -> None:
    federation = fc.Federation.simulated(classes=2)
    done = fc.workflows.evaluate(federation, fc.SecAgg())
    page = done.contents()
    for sentence in (page.asked, *page.summary, *page.gains, *page.next_steps, *page.meaning):
        for part in re.split(r"[.:?] ", sentence):
            assert len(part.split()) <= 30, part
