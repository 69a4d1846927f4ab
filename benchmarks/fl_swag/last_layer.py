"""Posteriors over the last layer of a network whose body is frozen: what FL-SWAG's second table compares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.baselines import alone, averaged_weights
from benchmarks.fl_swag.data import SEED, deal
from benchmarks.fl_swag.measure import LAST_LAYER, figures
from benchmarks.langevin import Langevin
from benchmarks.progress import Table
from fedcalib import metrics
from fedcalib.artifacts.networks import Scorer, Trained
from fedcalib.methods.fl_swag import FLSWAG
from fedcalib.training import SGD, LocalTraining, SoftmaxRegression
from fedcalib.training.network import Network
from fedcalib.training.posterior import Curvature, Trajectory

RATES, EPOCHS, PRIOR = (0.03, 0.1, 0.3), 20, 1.0
HALF = EPOCHS // 2
MODES = {
    "public": "pretrained on public data only",
    "union": "pretrained on the clients' union, as the slides did: not federated",
}
FIGURES = ("slides_accuracy", "slides_ece_x100", "slides_brier_x10", "slides_nll_x10")
Settled = tuple[str, str, Scorer]  # method, setting, what it gave


def pretrained(network: Network, records: fc.Records, training: LocalTraining, cache: Path) -> Trained:
    """Train a network in one place, an epoch at a time, going on after the last one that was kept."""
    weights, done = network.start(SEED), 0
    if cache.exists():
        with np.load(cache) as file:
            weights, done = file["weights"], int(file["epochs"])
    once = replace(training, epochs=1)
    for epoch in range(done, training.epochs):
        rng = np.random.default_rng((SEED, epoch))
        weights = once.train(network, weights, records.extra["inputs"], records.labels, rng).weights
        cache.parent.mkdir(exist_ok=True)
        np.savez(cache, weights=weights, epochs=epoch + 1)
        print(f"{cache.stem}: epoch {epoch + 1} of {training.epochs}", flush=True)
    return Trained(network, weights)


def federated(head: SoftmaxRegression, federation: fc.Federation) -> Iterator[Settled]:
    """Give each posterior that clients can agree on through one secure sum, at every setting."""
    for rate in RATES:
        half, whole = LocalTraining(HALF, 64, SGD(rate)), LocalTraining(EPOCHS, 64, SGD(rate))
        recipes = {
            ("FL-SWAG", f"rate {rate}"): Trajectory(half, HALF, shrink=0.0, weighted=False),
            ("FL-SWAG, shrunken", f"rate {rate}, by 0.5"): Trajectory(half, HALF, shrink=0.5, weighted=True),
            ("FL-SWAG, shrunken", f"rate {rate}, by 0.9"): Trajectory(half, HALF, shrink=0.9, weighted=True),
            ("FL-SWAG, Fisher", f"rate {rate}"): Curvature(whole),
        }
        for (name, setting), recipe in recipes.items():
            method = FLSWAG(head, recipe, prior=PRIOR, most=1e7, column="features")
            yield (
                name,
                setting,
                fc.run(method, fc.InProcess(federation), fc.SecAgg(bits=40), randomness=fc.Simulated(SEED)).artifact,
            )
        models = alone(head, federation, whole, weights=head.start(0), seed=SEED, column="features", prior=PRIOR)
        yield "wFedAvg", f"rate {rate}", averaged_weights(models, tuple(map(float, federation.sizes)))


def centralised(head: SoftmaxRegression, federation: fc.Federation) -> Iterator[Settled]:
    """Give samplers over pooled records, at every setting."""
    for preconditioned, rate in ((False, 1e-6), (False, 5e-6), (True, 1e-8), (True, 1e-7)):
        sampler = Langevin(rate=rate, preconditioned=preconditioned, prior=PRIOR)
        name = ("pSGLD" if preconditioned else "SGLD") + ", centralised"
        yield name, f"rate {rate:g}", sampler.sample(head, head.start(0), federation.records, SEED, "features")


def settled(head: SoftmaxRegression, federation: fc.Federation, held: fc.Records) -> dict[str, tuple[str, Scorer]]:
    """Keep each method's setting with the least held-out log loss; then tune its scale on the same records."""
    found: dict[str, tuple[float, str, Scorer]] = {}
    for name, setting, scorer in (*federated(head, federation), *centralised(head, federation)):
        loss = metrics.nll(scorer.over(held).probs, held.labels)
        if name not in found or loss < found[name][0]:
            found[name] = loss, setting, scorer
    best = {name: (setting, scorer) for name, (_, setting, scorer) in found.items()}
    for name in ("FL-SWAG", "FL-SWAG, shrunken", "FL-SWAG, Fisher"):
        setting, posterior = best[name]
        tuned = posterior.tuned(held)
        best[f"{name}, scale tuned"] = f"{setting}, scale {tuned.scale:g}", tuned
    return best


def warmed(scorer: Scorer, held: fc.Records, test: fc.Records) -> fc.Records:
    """Calibrate by one temperature, which the clients find through secure sums on records kept from training."""
    runtime = fc.InProcess(deal(scorer.over(held)))
    calibrator = fc.run(
        fc.OneShotTemperature(refinements=2), runtime, fc.SecAgg(), randomness=fc.Simulated(SEED)
    ).artifact
    scored = scorer.over(test)
    return fc.Records(calibrator(scored.probs), scored.labels, False)


def compare(
    data: str, mode: str, body: Trained, *, federation: fc.Federation, held: fc.Records, test: fc.Records,
    table: Table, **told: object,
) -> dict[str, fc.Records]:  # fmt: skip
    """Add one row a method to the table; give the test records as each method scores them."""
    over, held, test = body.across(federation), body.over(held), body.over(test)
    head = SoftmaxRegression(test.extra["features"].shape[1], test.classes)
    best = settled(head, over, held)
    scored = {name: scorer.over(test) for name, (_, scorer) in best.items()}
    name, (setting, scorer) = "FL-SWAG, shrunken", best["FL-SWAG, shrunken"]
    scored[f"{name}, then temperature"] = warmed(scorer, held, test)
    best[f"{name}, then temperature"] = setting, scorer
    if mode == "union":
        scored["the pretrained network itself"] = test
    for name, records in scored.items():
        row = {"data": data, "mode": MODES[mode], **told, "clients_records": len(over.records), "method": name}
        slides = LAST_LAYER[data].get(name.split(",")[0], ("",) * 4)
        setting = best[name][0] if name in best else ""
        table.add({**row, "setting": setting, **figures(records), **dict(zip(FIGURES, slides, strict=True))})
    return scored
