from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.errors import InputError
from fedcalib.metrics.intervals import Measured
from fedcalib.workflows.comparison import ByClient, ByRecord, Holdout, MethodComparison, compare
from fedcalib.workflows.comparison_result import ComparisonResult, MethodRow
from fedcalib.workflows.session import Data, WorkflowSession
from tests.cli.conftest import Shell, overconfident

QUICK = "fed-bin,platt-scaling,one-shot-temperature"


def three_classes(n: int = 900, clients: int = 9) -> fc.Federation:
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=n)
    logits = 2 * (rng.normal(size=(n, 3)) + 1.2 * np.eye(3)[labels])
    return fc.Federation.grouped(fc.Records.of_logits(logits, labels), np.arange(n) % clients, clients)


def test_methods_stand_side_by_side_and_say_that_it_is_a_simulation(shell: Shell, scores: Path) -> None:
    said = shell(
        "compare", scores, "--methods", QUICK, "--repeats", 2, "--out", "out", "--format", "json",
        "--privacy", "distributed", "--epsilon", 2,
    )  # fmt: skip
    assert said.code == 0, said.err
    found = said.json
    assert found["simulation"] is True
    assert "not private" in found["privacy"]["statement"] or "nothing here is private" in found["privacy"]["statement"]
    assert {row["method"] for row in found["methods"]} == set(QUICK.split(","))
    errors = [row["cwece"]["value"] for row in found["methods"]]
    assert errors == sorted(errors)
    assert errors[0] < found["base"]["cwece"]["value"] / 2, "there is a lot to calibrate, so somebody has to"
    for row in found["methods"]:
        assert row["epsilon"] == 2
        assert row["unit"] == "record"
        assert row["bytes_per_client"] > 0
        assert row["client_seconds"] > 0
        assert row["nll"]["low"] < row["nll"]["value"] < row["nll"]["high"]
    assert json.loads(Path("out/result.json").read_text())["methods"] == found["methods"]
    assert Path("out/comparison.svg").read_text().startswith("<svg")
    assert "Simulation" in Path("out/report.html").read_text()


def test_the_same_command_gives_the_same_table(shell: Shell, scores: Path) -> None:
    def rows(seed: int) -> list[dict[str, object]]:
        said = shell(
            "compare", scores, "--methods", "fed-bin", "--repeats", 1, "--simulate-seed", seed, "--format", "json"
        )
        return [{name: row[name] for name in ("cwece", "ece", "nll")} for row in said.json["methods"]]

    assert rows(1) == rows(1) != rows(2)


def test_methods_that_do_not_apply_are_listed_with_the_reason(shell: Shell, home: Path) -> None:
    federation = three_classes()
    table = pd.DataFrame({f"logit_{k}": federation.records.logits[:, k] for k in range(3)})
    table.assign(label=federation.records.labels, site=federation.owner).to_csv("three.csv", index=False)
    words = "platt-scaling,fed-bin,one-shot-temperature"
    said = shell(
        "compare", "three.csv", "--logits", "logit_*", "--methods", words, "--split", "client", "--repeats", 1,
        "--privacy", "user", "--epsilon", 1, "--delta", 1e-5, "--format", "json",
    )  # fmt: skip
    assert said.code == 0, said.err
    reasons = {row["method"]: row["reason"] for row in said.json["refused"]}
    assert set(reasons) == {"platt-scaling", "fed-bin"}
    assert "3 classes" in reasons["platt-scaling"]
    assert "clip" in reasons["fed-bin"]
    assert [row["unit"] for row in said.json["methods"]] == ["client"]
    said = shell("compare", "three.csv", "--logits", "logit_*", "--methods", "platt-scaling")
    assert said.code == 2
    assert "all refused" in said.err
    (home / "two.csv").write_text("site,score,label\n" + "a,0.2,0\nb,0.7,1\n" * 20)
    said = shell("compare", "two.csv", "--methods", "fed-bin,platt-scaling")
    assert "fed-bin, platt-scaling: Expected at least 3 clients" in said.err, "one reason is said once"


def test_spending_splits_the_budget_and_debits_the_total_once(shell: Shell, scores: Path) -> None:
    shell("ledger", "limit", "budget.db", "people", "--epsilon", 1)
    command = (
        "compare", scores, "--methods", "fed-bin,platt-scaling", "--spend", "--privacy", "distributed",
        "--epsilon", 0.8, "--ledger", "budget.db", "--account", "people", "--format", "json",
    )  # fmt: skip
    said = shell(*command)
    assert said.code == 0, said.err
    assert said.json["simulation"] is False
    assert [row["epsilon"] for row in said.json["methods"]] == pytest.approx([0.4, 0.4])
    account = fc.Ledger("budget.db").account("people")
    assert float(account.epsilon) == pytest.approx(0.8, abs=1e-5)
    again = shell(*command)
    assert again.json["methods"] == said.json["methods"], "answers are replayed, so nobody is asked twice"
    assert fc.Ledger("budget.db").account("people").debits == 1
    refused = shell(*command[:-2], "--holdout", 0.4)
    assert refused.code == 3


def test_whole_clients_pay_for_fitting_and_for_measuring(shell: Shell, home: Path) -> None:
    overconfident(4000, 40, 0).to_csv("many.csv", index=False)
    command = (
        "compare", "many.csv", "--methods", "platt-scaling", "--spend", "--privacy", "user", "--epsilon", 4,
        "--delta", 1e-5, "--clip", 100, "--ledger", "budget.db", "--format", "json",
    )  # fmt: skip
    said = shell(*command)
    assert said.code == 0, said.err
    assert said.json["methods"][0]["epsilon"] == pytest.approx(2, rel=1e-3)  # the other half goes to two measurements
    assert float(fc.Ledger("budget.db").account("default").epsilon) == pytest.approx(4, rel=1e-3)
    apart = shell(*command, "--split", "client", "--state", "other")
    assert apart.code == 0, apart.err
    assert apart.json["methods"][0]["epsilon"] == pytest.approx(4, rel=1e-3)  # a client is fitted or measured


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--methods", "fed-bin,magic"), "magic"),
        (("--methods", ","), "at least one"),
        (("--ledger", "budget.db"), "--spend"),
        (("--spend",), "--epsilon"),
        (("--repeats", "0"), "repeat"),
        (("--holdout", "1"), "share"),
    ],
)
def test_wrong_flags_are_explained(shell: Shell, scores: Path, flags: tuple[str, ...], told: str) -> None:
    said = shell("compare", scores, *flags)
    assert said.code == 2
    assert told in said.err


@pytest.mark.parametrize("split", [ByRecord(0.25), ByClient(0.25)])
def test_no_record_is_on_both_sides(split: Holdout) -> None:
    federation = three_classes()
    fitted, held = split.part(federation, 0)
    rows = [set(map(tuple, part.records.logits.tolist())) for part in (fitted, held)]
    assert not rows[0] & rows[1]
    assert len(rows[0]) + len(rows[1]) == len(federation.records)
    assert 0.1 < len(rows[1]) / len(federation.records) < 0.5
    owners = [set(part.owner[: len(part.records)]) for part in (fitted, held)]
    assert len(held) == len(fitted) if isinstance(split, ByRecord) else len(owners[1]) == len(held) < len(federation)


def test_every_method_meets_the_same_splits() -> None:
    methods = {"bin": fc.FedBin(), "same": fc.FedBin(), "finer": fc.FedBin(30)}
    rows = {row.method: row.values for row in compare(three_classes(), methods, repeats=2).rows}
    assert rows["bin"] == rows["same"] != rows["finer"]
    assert rows["bin"]["nll"].low < rows["bin"]["nll"].high, "the splits differ"


def test_a_split_that_leaves_nothing_is_explained() -> None:
    with pytest.raises(InputError, match="at least two clients"):
        compare(three_classes(9, 1), {"bin": fc.FedBin()}, holdout=ByClient())
    with pytest.raises(InputError, match="both sides"):
        compare(three_classes(2, 2), {"bin": fc.FedBin()}, holdout=ByRecord(0.0001))


def test_what_drowned_in_noise_comes_last_and_is_not_called_zero() -> None:
    def row(name: str, error: float) -> MethodRow:
        return MethodRow(name, {key: Measured(error) for key in ("cwece", "ece", "nll", "accuracy_change")})

    comparison = MethodComparison(Data(None), {}, fc.Open(), fc.Everyone(), ByRecord(), WorkflowSession())
    rows = [row("drowned", math.nan), row("clear", 0.1)]
    found: ComparisonResult = comparison._result(row("none", 0.2), rows, {}, "", {}, simulation=True)
    assert [one.method for one in found.rows] == ["clear", "drowned"]
    assert found.to_json()["methods"][1]["cwece"] == {"value": None, "low": None, "high": None}
    table, _ = found.tables()
    assert table.rows[2][:5] == ("drowned", "-", "-", "-", "-")
