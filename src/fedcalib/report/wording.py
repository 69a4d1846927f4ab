"""Numbers and counts as words: aligned, never `nan`, never a private count."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedcalib.measured import Measured
from fedcalib.report.values import Count, Number, Public, known, parts

MISSING = "–"
PRIVATE = "not shown (private)"
TOO_FEW = "too few to show"


def number(value: Number, decimals: int = 4) -> str:
    """Write a number with that many decimals; a value too small for them shows as a bound, not as zero."""
    exact = known(value)
    if math.isnan(exact):
        return MISSING
    smallest = 10.0**-decimals
    if 0 < abs(exact) < smallest / 2:
        return f"{'<' if exact > 0 else '>'} {signed_minus(math.copysign(smallest, exact), decimals)}"
    return signed_minus(exact, decimals)


def signed_minus(value: float, decimals: int) -> str:
    """Write a number with thousands set apart, and a true minus sign in front of it."""
    text = f"{abs(value):,.{decimals}f}" if abs(value) < 1e12 else f"{abs(value):.3g}"
    return f"−{text}" if value < 0 and text.strip("0.,") else text


def interval(measured: Measured | None, decimals: int = 4) -> str:
    """Write an interval as 'low to high'; empty where there is none."""
    _, low, high = parts(measured)
    return "" if math.isnan(low) or math.isnan(high) else f"{number(low, decimals)} to {number(high, decimals)}"


def with_interval(measured: Measured | None, decimals: int = 4) -> str:
    """Write a value and, in brackets, its interval."""
    value, around = number(parts(measured)[0], decimals), interval(measured, decimals)
    return f"{value} ({around})" if around else value


def count(value: Count) -> str:
    """Write a count as far as it may be shown."""
    match value:
        case None:
            return PRIVATE
        case Public(known_before):
            return f"{known_before:,} (public)"
        case Measured():
            text = with_interval(value, 0)
            return text if text == MISSING else f"about {text}"
    return f"{value:,}"


def decimals_for(column: Iterable[Measured | None]) -> int:
    """Choose one number of decimals for a whole column, so that its points align: two to four."""
    halves = [half for _, low, high in map(parts, column) if 0 < (half := (high - low) / 2) < math.inf]
    if not halves:
        return 4
    return min(4, max(2, 1 - math.floor(math.log10(min(halves)))))


def compact(value: float) -> str:
    """Write a count in as few letters as a tick allows: 950, 12k, 3.1M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:  # what rounds up to the next letter takes it
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}"


def short(text: str, longest: int = 28) -> str:
    """Shorten a name to fit a label."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"
