"""Source 002, notes on "No Fear of Heterogeneity": CCVR."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.reproduction.findings import (
    Claim,
    Finding,
    Item,
    Rows,
    column,
    decided,
    has,
    interval,
    mean,
    pick,
    rows_of,
)

RESULTS, RAW = "ccvr/results.csv", "ccvr/as_published.csv"


def heads_differ_most() -> Finding:
    rows = pick("ccvr/similarity.csv")
    values = {"first": float(rows[0]["mean"]), "head": float(rows[-1]["mean"])}
    falling = bool((np.diff(column(rows, "mean")) < 0).all())
    sentence = "Mean similarity of layers between clients: {first:.2f} at the first, falling to {head:.2f} at the head."
    return Finding(falling, sentence, values)


def heads_favour_what_is_held() -> Finding:
    rows = pick(RAW, data="mnist", repair="none")
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
    raw = {alpha: pick(RAW, data="mnist", alpha=alpha) for alpha in ("0.05", "0.5")}
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


def repaired_pictures() -> Finding:
    """CIFAR-10 with raw covariances; the source's own skew is the milder one."""
    values, gains = {}, []
    for word, alpha in (("skewed", "0.1"), ("mild", "0.5")):
        rows = pick(RAW, data="cifar10", alpha=alpha)
        plain = [row for row in rows if row["repair"] == "none"]
        values |= {f"{word}_base": mean(plain, "accuracy"), f"{word}_limit": gain(rows, "oracle")}
        values |= {word: gain(rows, "CCVR, as published"), f"{word}_alpha": float(alpha)}
        gains.append(values[word])
    sentence = (
        "Points gained as published: {skewed:+.1f} from {skewed_base:.1f}% at alpha {skewed_alpha:g} (limit "
        "{skewed_limit:+.1f}), {mild:+.1f} from {mild_base:.1f}% at alpha {mild_alpha:g} (limit {mild_limit:+.1f})."
    )
    return Finding(min(gains) > 0, sentence, values)


def ablation(head: str) -> Finding:
    """Accuracy of another head beside the plain one's, paired by seed, with an interval over seeds."""
    wanted = {"data": "fashion-mnist", "alpha": "0.05", "records": "3000"}
    tables = {
        (base, repair): {
            row["seed"]: float(row["accuracy"]) for row in pick(RESULTS, base=base, repair=repair, **wanted)
        }
        for base in ("FedAvg", head)
        for repair in ("none", "CCVR")
    }
    seeds = sorted(tables[head, "none"])
    change = np.array([tables[head, "none"][seed] - tables["FedAvg", "none"][seed] for seed in seeds])
    values: dict[str, float] = {"runs": len(seeds), "change": float(change.mean())}
    values["low"], values["high"] = interval(change)
    for word, base in (("plain", "FedAvg"), ("own", head)):
        for at, repair in (("", "none"), ("_after", "CCVR")):
            values[word + at] = float(np.mean([tables[base, repair][seed] for seed in seeds]))
    sentence = (
        "accuracy {own:.1f} beside {plain:.1f} of a plain head, {low:+.1f} to {high:+.1f} points over {runs} runs; "
        "after CCVR {own_after:.1f} and {plain_after:.1f}."
    )
    below = decided(values["low"], values["high"]) if len(seeds) >= 3 else None  # one or two runs cannot tell
    return Finding(None if below is None else not below, sentence, values)


CIFAR = Item(
    "Experiments",
    "CIFAR-10, CIFAR-100, CINIC-10",
    "same for CIFAR-10, with fewer pictures and LeNet-5; CIFAR-100 and CINIC-10 are missing",
    partial(rows_of, RAW, "trainings", data="cifar10", repair="none"),
    (RAW,),
    claims=(Claim("CCVR adds accuracy on CIFAR-10", repaired_pictures),),
)
NOT_RUN = Item(
    "Experiments",
    "CIFAR-10, CIFAR-100, CINIC-10",
    "same for CIFAR-10, with few pictures; CIFAR-100 and CINIC-10 are missing",
    partial(rows_of, RESULTS, "trainings on too few pictures", data="cifar10", repair="none"),
    (RESULTS,),
    reason="Trainings on more CIFAR-10 pictures have not been run; there are none of CIFAR-100 and CINIC-10.",
)
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
        partial(rows_of, RAW, "trainings", data="mnist", repair="none"),
        (RAW,),
        claims=(Claim("Heads have longer rows for what clients hold", heads_favour_what_is_held),),
    ),
    Item(
        "Regularisation",
        "normalised head and proximal head",
        "substitute: Fashion-MNIST, LeNet-5",
        partial(rows_of, RESULTS, "trainings", data="fashion-mnist", alpha="0.05", records="3000", repair="none"),
        (RESULTS,),
        claims=(
            Claim("A proximal head helps", partial(ablation, "FedAvg, proximal head")),
            Claim("A normalised head helps", partial(ablation, "FedAvg, normalised head")),
        ),
    ),
    Item(
        "CCVR",
        "accuracy after the repair",
        "substitute: Fashion-MNIST and MNIST, LeNet-5",
        partial(rows_of, RAW, "trainings on MNIST and those of Fashion-MNIST", data="mnist", repair="none"),
        (RESULTS, RAW),
        ("ccvr/accuracy.png",),
        (Claim("CCVR adds accuracy", repaired),),
    ),
    CIFAR if has(RAW, data="cifar10") else NOT_RUN,
)
