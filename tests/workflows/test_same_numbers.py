"""One command has one set of numbers: in the terminal, in JSON, on the page and in Python."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.metrics.table import METRICS
from fedcalib.workflows import calibrate, evaluate
from tests.cli.conftest import Shell, home, overconfident, shell  # noqa: F401 - fixtures

TITLES = {metric.name: metric.title for metric in METRICS}
MODELS: dict[str, tuple[tuple[object, ...], fc.privacy.Privacy]] = {
    "secagg": (("--privacy", "secagg"), fc.SecAgg()),
    "distributed": (("--privacy", "distributed", "--epsilon", 0.5), fc.DistributedDP(0.5)),
}


def words(measured: dict[str, float]) -> str:
    return f"{measured['value']:z.4f} ({measured['low']:z.4f} to {measured['high']:z.4f})"


def on_page(page: str) -> dict[str, list[str]]:
    """The figures of each metric on a page, as the terminal writes them."""
    section = re.split(r'<h2 id="metrics">', page)[1].split("</section>")[0]
    found = {}
    for row in re.findall(r"<tr>(.*?)</tr>", section, re.DOTALL):
        name = re.search(r'<th scope="row">(.*?)(?:<small>|</th>)', row)
        cells = re.findall(r'<td class="num"[^>]*><b>(.*?)</b>(?:<small>(.*?)</small>)?</td>', row)
        if name:
            texts = [f"{value} ({interval})" if interval else value for value, interval in cells]
            found[html.unescape(re.sub(r"<.*?>", "", name.group(1)))] = [
                html.unescape(text).replace("−", "-") for text in texts
            ]
    return found


def in_terminal(text: str) -> dict[str, list[str]]:
    """The cells of the first table of a terminal's output by metric."""
    lines = text.split("Privacy", maxsplit=1)[0].splitlines()
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines if line.startswith("  ")]
    return {cells[0]: cells[1:] for cells in reversed(rows) if cells[0] in TITLES}  # the first of a name counts


def same(page: str, said: str) -> bool:
    """Whether two texts have the same numbers; a page writes < 0.0001 instead of 0.0000, and + before a rise."""
    plain = page.replace("+", "").replace("< 0.0001", "0.0000").replace("> -0.0001", "-0.0000")
    return plain.replace("-0.0000", "0.0000") == said.replace("-0.0000", "0.0000")


@pytest.mark.parametrize("model", MODELS)
def test_an_evaluation_has_one_set_of_numbers(shell: Shell, home: Path, model: str) -> None:  # noqa: F811
    overconfident(250, 4, 0).to_csv(home / "scores.csv", index=False)
    flags, privacy = MODELS[model]
    command = ("evaluate", "scores.csv", *flags, "--simulate-seed", 3, "--out", "report")
    document = shell(*command, "--format", "json").json
    terminal = in_terminal(shell(*command).out)
    page = on_page((home / "report" / "report.html").read_text())
    done = evaluate(home / "scores.csv", privacy, simulate=3)
    frame = done.to_frame().set_index("metric")
    loaded = fc.load(home / "report" / "performance.json")
    assert len(document["metrics"]) > 20
    for name, measured in document["metrics"].items():
        if measured is None:
            reason = document["unmeasurable"][name]
            assert terminal[name] == [reason.split(":")[0]]
            assert reason in page[TITLES[name]][0]
            assert frame.loc[name, "reason"] == done.metrics.unmeasurable()[name] == reason
            assert pd.isna(frame.loc[name, "measured"])
            continue
        assert terminal[name] == [words(measured)]
        assert same(page[TITLES[name]][0], words(measured)), name
        assert done.metrics.measures()[name].to_json() == measured
        assert loaded.measures()[name].to_json() == measured
        columns = ["measured", "measured_low", "measured_high"]
        assert frame.loc[name, columns].tolist() == list(measured.values())
    notebook = html.unescape(done._repr_html_()).replace("−", "-")
    shown = [name for name in ("auc", "ece", "slope", "observed_expected", "brier") if document["metrics"][name]]
    assert shown
    assert all(page[TITLES[name]][0] in notebook for name in shown), "a notebook has the same numbers"
    headline = (home / "report" / "report.html").read_text().split('class="lead">')[1].split("</header>")[0]
    for name in ("auc", "accuracy", "ece"):
        value = document["metrics"][name]
        assert value is None or f"{TITLES[name]} {words(value)}" in headline
    if model == "distributed":
        assert document["unmeasurable"], "at this epsilon some figures cannot be stated, and all four say so"


@pytest.mark.parametrize("model", MODELS)
def test_a_calibration_has_one_set_of_numbers(shell: Shell, home: Path, model: str) -> None:  # noqa: F811
    overconfident(2500, 4, 0).to_csv(home / "scores.csv", index=False)
    flags, privacy = MODELS[model]
    command = ("calibrate", "scores.csv", "--method", "platt-scaling", *flags, "--simulate-seed", 3, "--out", "out")
    document = shell(*command, "--format", "json").json
    terminal = in_terminal(shell(*command).out)
    text = (home / "out" / "report.html").read_text()
    page = on_page(text)
    done: Any = calibrate(home / "scores.csv", fc.PlattScaling(), privacy, simulate=3)
    frame = done.to_frame().set_index("metric")
    compared = 0
    for name in document["before"]:
        figures = [document[side][name] for side in ("before", "after", "change")]
        if None in figures:
            continue
        compared += 1
        assert terminal[name] == [*map(words, figures), document["verdicts"][name]]
        for shown, measured in zip(page[TITLES[name]], figures, strict=True):
            assert same(shown, words(measured)), (name, shown, words(measured))
        assert done.change[name].to_json() == figures[2]
        assert frame.loc[name, ["before", "after", "change"]].tolist() == [one["value"] for one in figures]
        assert frame.loc[name, "verdict"] == document["verdicts"][name]
        row = re.search(
            rf'<th scope="row">(?:<a [^>]*>)?{re.escape(html.escape(TITLES[name]))}<.*?</tr>', text, re.DOTALL
        )
        assert row is not None
        assert f">{document['verdicts'][name]}</span>" in row.group()
    assert compared > 10
    notebook = html.unescape(done._repr_html_()).replace("−", "-")
    assert all(text in notebook for text in page["AUC"]), "a notebook has the same numbers"
    assert document["verdicts"]["ece"] in text.split('class="lead">')[1].split("</p>")[0]


def test_flags_of_classes_ask_for_what_arguments_ask(shell: Shell, home: Path) -> None:  # noqa: F811
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(6), 4000)
    label = (rng.random((4000, 1)) > np.cumsum(probs, axis=1)).sum(axis=1).clip(0, 5)
    frame = pd.DataFrame(probs, columns=[f"p_{k}" for k in range(6)]).assign(label=label, site=np.arange(4000) % 4)
    frame.to_csv(home / "scores.csv", index=False)
    noisy = ("evaluate", "scores.csv", "--epsilon", 3, "--simulate-seed", 3, "--format", "json")
    plain, document = shell(*noisy).json, shell(*noisy, "--class-auc", "--confusion").json
    assert "macro_auc" not in plain["metrics"]
    assert plain["confusion"] is None
    done = evaluate(home / "scores.csv", fc.DistributedDP(3.0), simulate=3, class_auc=True, confusion=True)
    assert document["metrics"]["macro_auc"] == done.metrics.measures()["macro_auc"].to_json()
    assert document["metrics"] == {
        name: None if name in done.metrics.unmeasurable() else one.to_json()
        for name, one in done.metrics.figures.items()
    }
    assert np.array(document["confusion"], dtype=float).shape == (6, 6)
    exact = shell("evaluate", "scores.csv", "--no-class-auc", "--no-confusion", "--format", "json").json
    assert "macro_auc" not in exact["metrics"]
    assert exact["confusion"] is None
    overconfident(250, 4, 0).to_csv(home / "two.csv", index=False)
    assert "several classes" in shell("evaluate", "two.csv", "--confusion").err
