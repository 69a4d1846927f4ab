"""Fills the tables of README.md and annex.md from the files of results: `python -m benchmarks.domain_shift.readme`.

A part between `<!-- NAME -->` and `<!-- end -->` is written anew; all other text stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.domain_shift.run import HERE, PUBLISHED, RESULTS
from benchmarks.domain_shift.tables import by_corruption, lines, markdown, overall, published, ratio, tabled

PAGES = (HERE / "README.md", HERE / "annex.md")
CORRUPTIONS = 10
_PART = re.compile(r"(<!-- ([a-z0-9 ]+) -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)


def without_privacy(severity: int) -> str:
    """Lay out what each criterion reaches without noise."""
    held = [row for row in lines(HERE / "without_privacy.csv") if int(row["severity"]) in (severity, 0)]
    names = ("No recalibration", "NLL-T", "Acc-T", "ECE-T")
    rows = [
        [row["corruption"].replace("_", " "), f"{float(row['accuracy']):.3f}", *(f"{float(row[n]):.4f}" for n in names)]
        for row in held
    ]
    return markdown(("corruption", "accuracy", *names), rows)


def clipping() -> str:
    """Lay out the cuts of the loss, by case."""
    held = lines(HERE / "clipping.csv")
    cases = list(dict.fromkeys((row["corruption"], row["severity"]) for row in held))
    found = {(row["corruption"], row["severity"], row["method"]): float(row["ece"]) for row in held}
    methods = list(dict.fromkeys(row["method"] for row in held))
    rows = [[method, *(f"{found[(*case, method)]:.4f}" for case in cases)] for method in methods]
    return markdown(["method", *(f"{name}, severity {severity}" for name, severity in cases)], rows)


def natural() -> str:
    """Lay out the natural shifts, with the standard error of the mean over splits."""
    rows = [
        [
            row["target"],
            row["method"],
            row["splits"],
            f"{float(row['ece']):.4f} ± {float(row['ece_sd']) / float(row['splits']) ** 0.5:.4f}",
            f"{float(row['nll']):.4f}",
            f"{float(row['brier']):.4f}",
        ]
        for row in sorted(lines(HERE / "natural.csv"), key=lambda row: row["target"])
    ]
    return markdown(("target", "method", "splits", "ECE", "NLL", "Brier"), rows, words=2)


def weeks() -> str:
    """Lay out the weeks, and say what recalibrating changed and where it hurt."""
    held = lines(HERE / "weeks.csv")
    numbers = ("positive_rate", "mean_score", "ece_never", "ece_served", "private_ece")
    table = markdown(
        ("week", "alarms", "positive rate", "mean score", "ECE never", "ECE served", "ECE never, as released"),
        [[row["week"].removeprefix("week "), row["alarms"], *(row[name] for name in numbers)] for row in held],
        words=2,
    )
    never, served = (np.array([float(row[name]) for row in held[1:]]) for name in ("ece_never", "ece_served"))
    hurt = [row["week"] for row, worse in zip(held[1:], served > never, strict=True) if worse]
    return (
        f"The mean weekly ECE of the {len(never)} weeks that something learnt before could serve is "
        f"{served.mean():.4f}, against {never.mean():.4f} without; it hurts in {', '.join(hurt)}.\n\n{table}"
    )


def false_alarms() -> str:
    """Say how often nothing was alarmed."""
    held = lines(HERE / "false_alarms.csv")
    tested, raised = (sum(int(row[name]) for row in held) for name in ("windows_tested", "alarms"))
    by_signal = ", ".join(f"{sum(int(row[name]) for row in held)} of {name}" for name in ("gap", "confidence", "auc"))
    return (
        f"{raised} windows of {tested} raised an alarm in {len(held)} runs of {int(held[0]['records']):,} records "
        f"each: {raised / tested:.2%} ({by_signal})."
    )


def speed() -> str:
    """Say what the sweep took."""
    held = lines(HERE / "speed.csv")
    rows = []
    for severity in sorted({row["severity"] for row in held}, reverse=True):
        own = [row for row in held if row["severity"] == severity]
        column = {name: [float(row[name]) for row in own] for name in ("processor_seconds", "slowest_setting", "load")}
        settings = sum(int(row["settings"]) for row in own)
        total, slowest = sum(column["processor_seconds"]), max(column["slowest_setting"])
        loads = f"{min(column['load']):.0f} to {max(column['load']):.0f}"
        rows.append([severity, str(settings), f"{total:.0f} s", f"{total / settings:.2f} s", f"{slowest:.2f} s", loads])
    return markdown(("severity", "settings", "processor time", "a setting", "slowest setting", "load meanwhile"), rows)


def swept(table: Callable[[int], str], severity: int) -> str:
    """Lay out a severity's table, or say that its sweep is not complete."""
    held = {row["corruption"] for row in lines(RESULTS) if int(row["severity"]) == severity}
    return table(severity) if len(held) == CORRUPTIONS else f"{len(held)} of {CORRUPTIONS} corruptions have been run."


SHOWN = (*PUBLISHED, "Acc-T, wide", "Ours: AccT", "Ours: SourceBinning", "Pooled, not private")
PRIVATE = [name for name in PUBLISHED if name not in ("No recalibration", "One source")]


def short() -> str:
    """The median over settings of the main methods, by severity."""
    found = {severity: tabled(severity) for severity in (5, 3, 1)}
    rows = [[name, *(f"{np.median(found[severity][name]):.4f}" for severity in found)] for name in SHOWN]
    return markdown(("method", *(f"severity {severity}" for severity in found)), rows)


def order() -> str:
    """In which share of the settings each private method of the publication is the best of them."""
    parts = []
    for severity in (5, 3, 1):
        found = tabled(severity)
        best = np.argmin([found[name] for name in PRIVATE], axis=0)
        shares = ", ".join(f"{name} {(best == at).mean():.0%}" for at, name in enumerate(PRIVATE))
        parts.append(f"severity {severity}: {shares}")
    return f"Best of the four in how many settings, published bracket: {'; '.join(parts)}."


def made() -> str:
    """The same for the seven kinds that were made here, and how often each private method is the best."""
    rows, shares = [], []
    table = {severity: _made(severity) for severity in (5, 3, 1)}
    for name in (*PUBLISHED, "Acc-T, wide", "Pooled, not private"):
        rows.append([name, *(f"{np.median(found[name]):.4f}" for found in table.values())])
    for severity, found in table.items():
        best = np.argmin([found[name] for name in PRIVATE], axis=0)
        told = ", ".join(f"{name} {(best == at).mean():.0%}" for at, name in enumerate(PRIVATE))
        shares.append(f"severity {severity}: {told}")
    said = f"Best of the four in how many settings, published bracket: {'; '.join(shares)}."
    return f"{markdown(('method', *(f'severity {severity}' for severity in table)), rows)}\n\n{said}"


def _made(severity: int) -> dict[str, np.ndarray]:
    held = [row for row in lines(HERE / "pictures.csv") if int(row["severity"]) == severity]
    names = list(dict.fromkeys(row["method"] for row in held))
    return {name: np.array([float(row["ece"]) for row in held if row["method"] == name]) for name in names}


def made_by_kind() -> str:
    """The seven kinds one by one: accuracy, and what criteria reach without privacy."""
    names = ("No recalibration", "NLL-T", "Acc-T", "ECE-T")
    rows = [
        [row["corruption"], row["severity"], f"{float(row['accuracy']):.3f}", *(f"{float(row[n]):.4f}" for n in names)]
        for row in lines(HERE / "pictures_open.csv")
    ]
    return markdown(("corruption", "severity", "accuracy", *names), rows)


PARTS: dict[str, Callable[[], str]] = {
    **{f"overall {severity}": partial(swept, overall, severity) for severity in (5, 3, 1)},
    **{f"ratio {severity}": partial(swept, ratio, severity) for severity in (5, 3, 1)},
    **{f"published {severity}": partial(swept, published, severity) for severity in (5, 1)},
    **{f"corruptions {severity}": partial(swept, by_corruption, severity) for severity in (5, 3, 1)},
    **{f"without privacy {severity}": partial(without_privacy, severity) for severity in (5, 3, 1)},
    "short": short,
    "order": order,
    "made": made,
    "made by kind": made_by_kind,
    "clipping": clipping,
    "natural": natural,
    "weeks": weeks,
    "false alarms": false_alarms,
    "speed": speed,
}


def filled(text: str) -> str:
    """Write every marked part anew."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n\n{part[3]}", text)


def main() -> None:
    """Fill both pages."""
    for page in PAGES:
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
