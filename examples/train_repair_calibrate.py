"""From raw inputs to calibrated probabilities: train, repair, calibrate, evaluate, with one ledger and one report.

Run with `python examples/train_repair_calibrate.py [FOLDER]`; needs the extra `sklearn` for its data, 1,797 handwritten
digits. Leaves ledger.db, report.html and a picture of who holds what in the folder. Cells are
marked as notebooks do, so an editor can step through them.
"""

# %% Ten clients that each hold few kinds of digits, and some digits that nobody trains on
from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import fedcalib as fc
from fedcalib import metrics
from fedcalib.data import partition
from fedcalib.report.page import Page, save
from fedcalib.training import SGD, LocalTraining, SoftmaxRegression
from fedcalib.workflows.reports import diagram, metric_rows

out = Path(sys.argv[1] if len(sys.argv) > 1 else "example-report")
out.mkdir(parents=True, exist_ok=True)
inputs, labels = load_digits(return_X_y=True)
records = fc.Records.of_logits(np.zeros((len(labels), 10)), labels, inputs=inputs / 16)
federation = partition.dirichlet(records, clients=10, beta=0.05, seed=3, fewest=10)
partition.plot_holdings(federation, out / "who-holds-what.png")
train, rest = federation.split(0.4, seed=0)
calibration, test = rest.split(0.5, seed=1)
ledger = fc.Ledger(out / "ledger.db", "example")  # whatever is asked of these clients is charged here

# %% Train by federated averaging: the server sees sums of changes only
training = LocalTraining(epochs=5, batch=16, optimiser=SGD(0.3))
method = fc.methods.FedAvg(SoftmaxRegression(64, 10), rounds=3, training=training, largest=500)
model = fc.run(method, fc.InProcess(train), fc.SecAgg(), ledger=ledger).artifact

# %% Repair the head, which label skew has bent: one secure sum
repair = fc.methods.CCVR(features=64, start=model.head)
head = fc.run(repair, fc.InProcess(model.across(train)), fc.SecAgg(), ledger=ledger).artifact

# %% Calibrate on records that did not train, with differential privacy for each record
scored = head.across(model.across(calibration))
privacy = fc.DistributedDP(epsilon=2.0)
fitted = fc.run(fc.OneShotTemperature(), fc.InProcess(scored), privacy, ledger=ledger)

# %% Evaluate what each step has brought, on records that took part in none of them
steps = {"trained": model.across(test), "repaired": head.across(model.across(test))}
last = steps["repaired"]
steps["calibrated"] = fc.Federation(fitted.artifact.over(last.records), last.offsets, last.names)
for name, each in steps.items():
    probs, truth = each.records.probs, each.records.labels
    print(
        f"{name:10}  accuracy {metrics.accuracy(probs, truth):.3f}  ECE {metrics.ece(probs, truth):.3f}"
        f"  log loss {metrics.nll(probs, truth):.3f}"
    )

# %% The same as federated measurements, in one report, and what everything cost
before, after = (
    fc.run(fc.FederatedMetrics(), fc.InProcess(steps[name]), privacy, ledger=ledger)
    for name in ("trained", "calibrated")
)
spent = [
    f"Account '{account.name}': epsilon = {account.epsilon:g} for all that was asked." for account in ledger.accounts()
]
page = Page(
    title="Ten clients, few digits each: trained, repaired, calibrated",
    summary=(
        "Federated averaging, then CCVR for the head, then one temperature; measured on records of none of them.",
    ),
    privacy=(fitted.privacy.statement, *spent),
    private=True,
    metrics=metric_rows(before.artifact, after.artifact),
    before=diagram("as trained", before.artifact),
    after=diagram("repaired and calibrated", after.artifact),
    warnings=(*head.warnings, *after.artifact.warnings),
)
print(f"federated accuracy {before.artifact.accuracy} before, {after.artifact.accuracy} after")
print(*spent, f"The report is in {save(page, out / 'report.html')}.", sep="\n")
