"""The words of a report, explained: metrics by their definitions, and terms of privacy and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fedcalib.metrics.table import METRICS

# fmt: off
_TERMS: Final = {
    "95% interval": "If the study were repeated many times, such intervals would contain the true value in 95 of 100 "
                    "studies. They cover chance in the choice of records, and privacy noise where there is any.",
    "Calibrated": "Of all records with a prediction of 20%, 20% have the outcome, and so on for every value.",
    "Paired change": "The difference after less before, measured on the same records. It is known more precisely than "
                     "either value alone.",
    "Threshold": "A record with at least this predicted probability counts as positive: it raises an alert.",
    "Epsilon": "The privacy budget that was spent. The smaller it is, the less the results depend on any one record.",
    "Privacy noise": "Random numbers that are added before anything is released, so that no single record can be seen.",
    "Secure aggregation": "Sites send masked sums. The server can read only the total over all sites.",
    "Held out": "Records that were not used for fitting, so that a measurement on them does not flatter.",
    "Site": "An organisation that keeps its own records, such as a hospital.",
}
# fmt: on


def _key(name: str) -> str:
    return "term-" + "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower())


def entries(metrics: Sequence[str]) -> list[tuple[str, str, str]]:
    """Every metric of a page and all terms: key, name and explanation."""
    known = {metric.title: metric.definition for metric in METRICS}
    shown = {name: _sentence(known[name]) for name in dict.fromkeys(metrics) if name in known}
    return [(_key(name), name, text) for name, text in {**shown, **_TERMS}.items()]


def terms(metrics: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Key and explanation by name, for links from the page."""
    return {name: (key, text) for key, name, text in entries(metrics)}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
