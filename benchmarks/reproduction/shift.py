"""Source 003, "Privacy Preserving Recalibration under Domain Shift"."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.reproduction.findings import Claim, Finding, Item, column, mean, names, pick, rows_of

SWEEP, OPEN = "domain_shift/results.csv", "domain_shift/without_privacy.csv"
BEST = "Acc-T is the best private method"
PRIVATE = ("Histogram binning", "ECE-T", "NLL-T", "Acc-T")
CORRUPTED = "substitute: our own corruptions, another network"


def errors(severity: int) -> dict[str, np.ndarray]:
    rows = pick(SWEEP, severity=severity)
    return {method: column([row for row in rows if row["method"] == method], "ece") for method in names(rows, "method")}


def accuracy_matching_is_best(severity: int) -> Finding:
    found = errors(severity)
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


def one_source_at_little_epsilon() -> Finding:
    values = {}
    for word, severity in (("hard", 5), ("mild", 1)):
        rows = pick(SWEEP, severity=severity, panel="epsilon", epsilon=0.2)
        tables = {
            name: column([row for row in rows if row["method"] == name], "ece") for name in (*PRIVATE, "One source")
        }
        values[word] = float((tables["One source"] < np.min([tables[name] for name in PRIVATE], axis=0)).mean())
    sentence = (
        "at the least epsilon it beats every private method in {hard:.0%} of cases at the greatest "
        "severity, {mild:.0%} at the least."
    )
    return Finding(min(values.values()) >= 0.5, sentence, values)


def more_helps(panel: str) -> Finding:
    rows = pick(SWEEP, severity=1, panel=panel, method="Acc-T")
    levels = sorted(names(rows, panel), key=float)
    first, last = (mean([row for row in rows if row[panel] == level], "ece") for level in (levels[0], levels[-1]))
    values = {"first": first, "last": last, "few": float(levels[0]), "many": float(levels[-1])}
    word = {"sources": "sources", "samples": "samples per source", "epsilon": "epsilon"}[panel]
    return Finding(
        last < first, f"{word}: Acc-T's mean ECE {{first:.4f}} at {{few:g}}, {{last:.4f}} at {{many:g}}.", values
    )


def criteria(severity: int) -> Finding:
    rows = [row for row in pick(OPEN) if row["severity"] == str(severity)]
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


def accuracies() -> Finding:
    rows = [row for row in pick(OPEN) if row["severity"] == "5"]
    values = {"low": float(column(rows, "accuracy").min()), "high": float(column(rows, "accuracy").max())}
    values["plain"] = float(next(row["accuracy"] for row in pick(OPEN) if row["severity"] == "0"))
    sentence = "ours is right on {plain:.2f} of plain pictures and on {low:.2f} to {high:.2f} of corrupted ones."
    return Finding(values["high"] < values["plain"], sentence, values)


def cuts() -> Finding:
    rows = pick("domain_shift/clipping.csv", severity=1)
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


def sweep(severity: int) -> Finding:
    rows = pick(SWEEP, severity=severity, method="Acc-T")
    return Finding(
        True,
        "{corruptions} corruptions, {settings} settings",
        {"corruptions": len(names(rows, "corruption")), "settings": len(rows)},
    )


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
        CORRUPTED + "; motion blur was not run",
        partial(sweep, 1),
        (SWEEP,),
        ("domain_shift/figures/brightness_1.png",),
        (
            Claim("More sources help", partial(more_helps, "sources")),
            Claim("More samples help", partial(more_helps, "samples")),
            Claim("A larger epsilon helps", partial(more_helps, "epsilon")),
            Claim("With little epsilon one source alone is best", one_source_at_little_epsilon),
        ),
    ),
    Item(
        "Table 1",
        "ECE at the greatest severity",
        CORRUPTED + "; CIFAR-10 only",
        partial(sweep, 5),
        (SWEEP,),
        PANELS,
        (Claim(BEST, partial(accuracy_matching_is_best, 5)),),
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
        partial(rows_of, OPEN, "corruptions and severities"),
        (OPEN,),
        claims=(Claim("Corruptions cost accuracy", accuracies),),
    ),
    Item(
        "Table 4",
        "CIFAR-10 without privacy",
        CORRUPTED,
        partial(rows_of, OPEN, "corruptions and severities"),
        (OPEN,),
        claims=(Claim("Acc-T is below NLL-T", partial(criteria, 5)),),
    ),
    Item("Table 5", "CIFAR-100 without privacy", "missing", reason="CIFAR-100-C and its logits cannot be had here."),
    Item("Table 6", "ImageNet without privacy", "missing", reason="ImageNet-C and its logits cannot be had here."),
    Item(
        "Figures 4 to 51",
        "panels for every perturbation",
        CORRUPTED + "; CIFAR-10 only, seven kinds missing",
        partial(sweep, 5),
        (SWEEP,),
        PANELS,
        (Claim(BEST, partial(accuracy_matching_is_best, 3)),),
    ),
    Item(
        "Figure 52",
        "cutting the loss, snow",
        CORRUPTED + "; snow was not run",
        partial(rows_of, "domain_shift/clipping.csv", "cases"),
        ("domain_shift/clipping.csv",),
        claims=(Claim("Acc-T is below NLL-T at every cut", cuts),),
    ),
    Item(
        "Table 7",
        "ECE at the least severity",
        CORRUPTED + "; CIFAR-10 only",
        partial(sweep, 1),
        (SWEEP,),
        ("domain_shift/figures/brightness_1.png",),
        (Claim(BEST, partial(accuracy_matching_is_best, 1)),),
    ),
)
