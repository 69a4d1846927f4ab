"""Source 003, "Privacy Preserving Recalibration under Domain Shift"."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.reproduction.findings import Claim, Finding, Item, column, has, mean, names, pick, rows_of

SWEEP, OPEN = "domain_shift/results.csv", "domain_shift/without_privacy.csv"
MADE, MADE_OPEN = "domain_shift/pictures.csv", "domain_shift/pictures_open.csv"  # the seven kinds made here
BEST = "Acc-T is the best private method"
PRIVATE = ("Histogram binning", "ECE-T", "NLL-T", "Acc-T")
CORRUPTED = "substitute: our own corruptions, another network"
TEN, SEVEN = "ten kinds", "seven further kinds, a small CNN"


def errors(severity: int, file: str) -> dict[str, np.ndarray]:
    rows = pick(file, severity=severity)
    return {method: column([row for row in rows if row["method"] == method], "ece") for method in names(rows, "method")}


def accuracy_matching_is_best(severity: int, file: str) -> Finding:
    found = errors(severity, file)
    medians = {name: float(np.median(found[name])) for name in PRIVATE}
    best = np.argmin([found[name] for name in PRIVATE], axis=0)
    values = {
        "acct": medians["Acc-T"],
        "nllt": medians["NLL-T"],
        "ecet": medians["ECE-T"],
        "binning": medians["Histogram binning"],
    }
    values["wide"] = float(np.median(found["Acc-T, wide"]))
    values["share"] = float((best == PRIVATE.index("Acc-T")).mean())
    sentence = (
        "median ECE Acc-T {acct:.4f} ({wide:.4f} in a wide bracket), NLL-T {nllt:.4f}, ECE-T {ecet:.4f}, histogram "
        "binning {binning:.4f}; Acc-T "
        "is the best "
        "private method in {share:.0%} of settings."
    )
    return Finding(min(medians, key=lambda name: medians[name]) == "Acc-T", sentence, values)


def one_source_at_little_epsilon(file: str, **wanted: object) -> Finding:
    values = {}
    for word, severity in (("hard", 5), ("mild", 1)):
        rows = pick(file, severity=severity, panel="epsilon", epsilon=0.2, **wanted)
        tables = {
            name: column([row for row in rows if row["method"] == name], "ece") for name in (*PRIVATE, "One source")
        }
        values[word] = float((tables["One source"] < np.min([tables[name] for name in PRIVATE], axis=0)).mean())
    sentence = (
        "at the least epsilon it beats every private method in {hard:.0%} of cases at the greatest "
        "severity, {mild:.0%} at the least."
    )
    return Finding(min(values.values()) >= 0.5, sentence, values)


def more_helps(panel: str, file: str, **wanted: object) -> Finding:
    rows = pick(file, severity=1, panel=panel, method="Acc-T", **wanted)
    levels = sorted(names(rows, panel), key=float)
    first, last = (mean([row for row in rows if row[panel] == level], "ece") for level in (levels[0], levels[-1]))
    values = {"first": first, "last": last, "few": float(levels[0]), "many": float(levels[-1])}
    word = {"sources": "sources", "samples": "samples per source", "epsilon": "epsilon"}[panel]
    return Finding(
        last < first, f"{word}: Acc-T's mean ECE {{first:.4f}} at {{few:g}}, {{last:.4f}} at {{many:g}}.", values
    )


def criteria(severity: int, file: str) -> Finding:
    rows = [row for row in pick(file) if row["severity"] == str(severity)]
    values = {
        word: mean(rows, name)
        for word, name in (("none", "No recalibration"), ("nllt", "NLL-T"), ("acct", "Acc-T"), ("ecet", "ECE-T"))
    }
    better = column(rows, "Acc-T") < column(rows, "NLL-T")
    values |= {"better": int(better.sum()), "all": len(rows)}
    sentence = (
        "mean ECE without privacy: none {none:.4f}, NLL-T {nllt:.4f}, Acc-T {acct:.4f}, ECE-T {ecet:.4f}; Acc-T is "
        "below NLL-T on "
        "{better} of {all} corruptions."
    )
    return Finding(values["acct"] < values["nllt"], sentence, values)


def accuracies(file: str) -> Finding:
    rows = [row for row in pick(file) if row["severity"] == "5"]
    values = {"low": float(column(rows, "accuracy").min()), "high": float(column(rows, "accuracy").max())}
    values["plain"] = float(next(row["accuracy"] for row in pick(file) if row["severity"] == "0"))
    sentence = "ours is right on {plain:.2f} of plain pictures and on {low:.2f} to {high:.2f} of corrupted ones."
    return Finding(values["high"] < values["plain"], sentence, values)


def cuts(file: str) -> Finding:
    rows = pick(file, severity=1)
    cut = [row for row in rows if row["method"].startswith("NLL-T cut")]
    best, case = {}, names(rows, "corruption")
    for name in case:
        own = [row for row in cut if row["corruption"] == name]
        acct = [row for row in rows if row["corruption"] == name and row["method"].startswith("Acc-T")]
        best[name] = float(column(own, "ece").min()), float(column(acct, "ece").min())
    values = {"below": sum(acct < nllt for nllt, acct in best.values()), "all": len(case)}
    values |= {
        "nllt": float(np.mean([one for one, _ in best.values()])),
        "acct": float(np.mean([one for _, one in best.values()])),
    }
    sentence = (
        "Acc-T {acct:.4f} against {nllt:.4f} of NLL-T at its best cut, means; Acc-T is below at every cut on "
        "{below} of {all} corruptions."
    )
    return Finding(values["below"] == values["all"], sentence, values)


def sweep(severity: int, *files: str) -> Finding:
    rows = [row for file in files or SWEPT for row in pick(file, severity=severity, method="Acc-T")]
    return Finding(
        True,
        "{corruptions} corruptions, {settings} settings",
        {"corruptions": len(names(rows, "corruption")), "settings": len(rows)},
    )


def each(says: str, stored: Callable[[], Finding], made: Callable[[], Finding]) -> tuple[Claim, ...]:
    """Of the ten kinds whose logits were stored, and of the seven that were made here, where they have been run."""
    both = (Claim(f"{says}, {TEN}", stored), Claim(f"{says}, {SEVEN}", made))
    return both if has(MADE) else both[:1]


def best_claims(severity: int) -> tuple[Claim, ...]:
    return each(BEST, *(partial(accuracy_matching_is_best, severity, file) for file in (SWEEP, MADE)))


BLURRED = MADE if has(MADE) else SWEEP  # the file that stands for motion blur
MOTION = {"corruption": "motion"} if has(MADE) else {}
SWEPT = (SWEEP, MADE) if has(MADE) else (SWEEP,)
UNNOISED = (OPEN, MADE_OPEN) if has(MADE) else (OPEN,)
SNOW, CUTS = "domain_shift/pictures_clipping.csv", "domain_shift/clipping.csv"
PANELS = ("domain_shift/figures/contrast_5.png",)
ITEMS = (
    Item("Figure 1", "ImageNet under fog", "missing", reason="ImageNet-C and its logits cannot be had here."),
    Item(
        "Figure 2",
        "CIFAR-100 under jpeg compression",
        "missing",
        reason="CIFAR-100-C and its logits cannot be had here.",
    ),
    Item(
        "Figure 3",
        "CIFAR-10 under motion blur",
        CORRUPTED if has(MADE) else CORRUPTED + "; motion blur was not run",
        partial(sweep, 1, BLURRED),
        (BLURRED,),
        claims=(
            Claim("More sources help", partial(more_helps, "sources", BLURRED, **MOTION)),
            Claim("More samples help", partial(more_helps, "samples", BLURRED, **MOTION)),
            Claim("A larger epsilon helps", partial(more_helps, "epsilon", BLURRED, **MOTION)),
            *each(
                "With little epsilon one source alone is best",
                *(partial(one_source_at_little_epsilon, file) for file in (SWEEP, MADE)),
            ),
        ),
    ),
    Item(
        "Table 1",
        "ECE at the greatest severity",
        CORRUPTED + "; CIFAR-10 only",
        partial(sweep, 5),
        SWEPT,
        PANELS,
        best_claims(5),
    ),
    Item(
        "Table 2",
        "what affects quality and privacy",
        "none",
        reason="It is an argument; Figure 3 has the measurable part.",
        testable=False,
    ),
    Item(
        "Table 3",
        "accuracy under corruptions",
        CORRUPTED,
        partial(rows_of, OPEN, "corruptions and severities of the larger network"),
        UNNOISED,
        claims=each("Corruptions cost accuracy", partial(accuracies, OPEN), partial(accuracies, MADE_OPEN)),
    ),
    Item(
        "Table 4",
        "CIFAR-10 without privacy",
        CORRUPTED,
        partial(rows_of, OPEN, "corruptions and severities of the larger network"),
        UNNOISED,
        claims=each("Acc-T is below NLL-T", partial(criteria, 5, OPEN), partial(criteria, 5, MADE_OPEN)),
    ),
    Item("Table 5", "CIFAR-100 without privacy", "missing", reason="CIFAR-100-C and its logits cannot be had here."),
    Item("Table 6", "ImageNet without privacy", "missing", reason="ImageNet-C and its logits cannot be had here."),
    Item(
        "Figures 4 to 51",
        "panels for every perturbation",
        CORRUPTED + "; CIFAR-10 only",
        partial(sweep, 3),
        SWEPT,
        PANELS,
        best_claims(3),
    ),
    Item(
        "Figure 52",
        "cutting the loss, snow",
        CORRUPTED if has(SNOW) else CORRUPTED + "; snow was not run",
        partial(rows_of, SNOW if has(SNOW) else CUTS, "cases"),
        (SNOW, CUTS) if has(SNOW) else (CUTS,),
        claims=(
            *((Claim("Acc-T is below NLL-T at every cut, snow", partial(cuts, SNOW)),) if has(SNOW) else ()),
            Claim("Acc-T is below NLL-T at every cut, brightness and saturation", partial(cuts, CUTS)),
        ),
    ),
    Item(
        "Table 7",
        "ECE at the least severity",
        CORRUPTED + "; CIFAR-10 only",
        partial(sweep, 1),
        SWEPT,
        ("domain_shift/figures/brightness_1.png",),
        best_claims(1),
    ),
)
