"""Source 002, notes on "No Fear of Heterogeneity": CCVR."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.reproduction.findings import Claim, Finding, Item, Rows, column, mean, pick, rows_of

RESULTS, RAW = "ccvr/results.csv", "ccvr/as_published.csv"


def heads_differ_most() -> Finding:
    rows = pick("ccvr/similarity.csv")
    values = {"first": float(rows[0]["mean"]), "head": float(rows[-1]["mean"])}
    falling = bool((np.diff(column(rows, "mean")) < 0).all())
    sentence = "Mean similarity of layers between clients: {first:.2f} at the first, falling to {head:.2f} at the head."
    return Finding(falling, sentence, values)


def heads_favour_what_is_held() -> Finding:
    rows = pick(RAW, repair="none")
    values = {"skewed": mean([row for row in rows if row["alpha"] == "0.05"], "norm_correlation")}
    values["mild"] = mean([row for row in rows if row["alpha"] == "0.5"], "norm_correlation")
    sentence = (
        "Correlation between a class's records and the length of its row of a client's head: {skewed:.2f} under "
        "strong skew, "
        "{mild:.2f} under mild skew."
    )
    return Finding(values["skewed"] > 0.3, sentence, values)


def gain(rows: Rows, repair: str) -> float:
    """Points of accuracy, paired by seed."""
    before = {row["seed"]: float(row["accuracy"]) for row in rows if row["repair"] == "none"}
    return float(np.mean([float(row["accuracy"]) - before[row["seed"]] for row in rows if row["repair"] == repair]))


def repaired() -> Finding:
    fashion = pick(RESULTS, data="fashion-mnist", alpha="0.05", base="FedAvg", records="6000")
    raw = {alpha: pick(RAW, alpha=alpha) for alpha in ("0.05", "0.5")}
    values = {"fashion": gain(fashion, "CCVR"), "limit": gain(fashion, "oracle: real pooled features")}
    values |= {
        "raw": gain(raw["0.05"], "CCVR, as published"),
        "shrunk": gain(raw["0.05"], "CCVR, shrunken covariances"),
    }
    values["mild"] = gain(raw["0.5"], "CCVR, as published")
    sentence = (
        "Points gained: Fashion-MNIST {fashion:+.1f} (limit {limit:+.1f}, shrunken covariances); MNIST as published "
        "{raw:+.1f} "
        "under strong skew (shrunken {shrunk:+.1f}), {mild:+.1f} under mild skew."
    )
    return Finding(min(values["fashion"], values["raw"]) > 0, sentence, values)


def cifar_has_not_learnt() -> Finding:
    rows = pick(RESULTS, data="cifar10", repair="none")
    values = {"low": float(column(rows, "accuracy").min()), "high": float(column(rows, "accuracy").max())}
    return Finding(False, "The base model has {low:.0f} to {high:.0f}% accuracy: it says nothing.", values)


def ablations() -> Finding:
    wanted = {"data": "fashion-mnist", "alpha": "0.05", "records": "3000"}
    values = {}
    for word, base in (("plain", "FedAvg"), ("near", "FedAvg, proximal head"), ("unit", "FedAvg, normalised head")):
        own = pick(RESULTS, base=base, seed="0", **wanted)
        values[word] = mean([row for row in own if row["repair"] == "none"], "accuracy")
        values[f"{word}_after"] = mean([row for row in own if row["repair"] == "CCVR"], "accuracy")
    sentence = (
        "Accuracy before and after CCVR, one run each: plain {plain:.1f} and {plain_after:.1f}, proximal head "
        "{near:.1f} and "
        "{near_after:.1f}, normalised head {unit:.1f} and {unit_after:.1f}."
    )
    return Finding(None, sentence, values)  # one run of each cannot tell


ITEMS = (
    Item(
        "Figure CKA",
        "similarity of layers between clients",
        "substitute: Fashion-MNIST, LeNet-5",
        partial(rows_of, "ccvr/similarity.csv", "layers of one network"),
        ("ccvr/similarity.csv",),
        ("ccvr/similarity.png",),
        (Claim("The head is the least similar layer", heads_differ_most),),
    ),
    Item(
        "Figure Label_Distribution",
        "heads favour classes",
        "substitute: MNIST, LeNet-5",
        partial(rows_of, RAW, "trainings", repair="none"),
        (RAW,),
        claims=(Claim("Heads have longer rows for what clients hold", heads_favour_what_is_held),),
    ),
    Item(
        "Regularisation",
        "normalised head and proximal head",
        "substitute: Fashion-MNIST, LeNet-5",
        partial(
            rows_of, RESULTS, "trainings", data="fashion-mnist", alpha="0.05", records="3000", seed="0", repair="none"
        ),
        (RESULTS,),
        claims=(Claim("Both help", ablations),),
    ),
    Item(
        "CCVR",
        "accuracy after the repair",
        "substitute: Fashion-MNIST and MNIST, LeNet-5",
        partial(rows_of, RAW, "trainings on MNIST and those of Fashion-MNIST", repair="none"),
        (RESULTS, RAW),
        ("ccvr/accuracy.png",),
        (Claim("CCVR adds accuracy", repaired),),
    ),
    Item(
        "Experiments",
        "CIFAR-10, CIFAR-100, CINIC-10",
        "missing",
        partial(rows_of, RESULTS, "trainings on too few pictures", data="cifar10", repair="none"),
        (RESULTS,),
        reason="Too few CIFAR-10 pictures are here to train a useful network, and none of CIFAR-100 and CINIC-10.",
    ),
)
