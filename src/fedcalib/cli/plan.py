"""`fedcalib plan`: how many clients, how much privacy and how fine a table a study needs, before anybody is asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from fedcalib.cli import options
from fedcalib.cli.voice import Voice
from fedcalib.errors import InputError
from fedcalib.files import write_all
from fedcalib.metrics.table import shown_in
from fedcalib.planning import Forecast, Study
from fedcalib.planning.simulation import ScoreModel
from fedcalib.queries.scores import ScoreTree
from fedcalib.workflows.documents import TextTable

_AROUND = (0.1, 0.3, 1.0, 3.0, 10.0)  # the table and the curve show sizes around the answer


def plan(
    *,
    metric: Annotated[str, Option(help=f"One of {', '.join(metric.name for metric in shown_in('planning'))}.")],
    target_error: Annotated[float | None, Option(help="Root mean square error to reach, such as 0.01.")] = None,
    clients: Annotated[int | None, Option(help="How many clients take part, one record each.")] = None,
    epsilon: Annotated[float | None, Option(help="Total budget.")] = None,
    privacy: Annotated[str, Option(help="secagg, distributed or local.")] = "distributed",
    positive_rate: Annotated[float, Option(help="Share of positives that you expect.")] = 0.3,
    auc: Annotated[float, Option(help="AUC that you expect of the model.")] = 0.75,
    height: Annotated[int | None, Option(help="Height of the tree of arity 4; chosen for you if left out.")] = None,
    plot: Annotated[Path | None, Option(help="Draw the error curve into this PNG.")] = None,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Solve for whichever of clients, epsilon and error is left out, by simulating the study."""
    voice = Voice(format_ is options.Format.JSON)
    study = Study(metric, privacy, ScoreModel(positive_rate, auc), None if height is None else ScoreTree(4, height))
    found = _solved(study, target_error, clients, epsilon)
    verdict = _verdict(study, found, target_error)
    around = _around(study, found)
    document = {
        "metric": metric,
        "privacy": privacy,
        "target_error": target_error,
        **_row(found),
        "enough": _reaches(found, target_error),
        "verdict": verdict,
        "around": [_row(forecast) for forecast in around],
    }
    if plot is not None:
        document["plot"] = str(write_picture(plot, study, around))
    voice.result(document, [TextTable("", ("", ""), (("verdict", verdict),)), _table(study, around)])


def _solved(study: Study, target: float | None, clients: int | None, epsilon: float | None) -> Forecast:
    """Find what was left out."""
    if clients is not None and (epsilon is not None or study.privacy == "secagg"):
        return study.forecast(clients, epsilon)
    if target is None:
        raise InputError("Expected --target-error, or both --clients and --epsilon, found neither.")
    if clients is not None:
        return study.epsilon_for(target, clients)
    return study.clients_for(target, epsilon)


def _reaches(found: Forecast, target: float | None) -> bool:
    return found.enough and (target is None or found.error <= 1.1 * target)


def _verdict(study: Study, found: Forecast, target: float | None) -> str:
    """Say it in a sentence."""
    budget = "" if found.epsilon is None else f" at epsilon = {found.epsilon:.3g}"
    size = f"{found.clients:,} clients{budget} under '{study.privacy}'"
    if not found.enough:
        return f"Not enough data: with {size}, {study.metric} drowns in noise in {found.refused:.0%} of runs."
    if not _reaches(found, target):
        return f"Not enough data: even {size} leave {study.metric} off by {found.error:.2g}, not {target:g}."
    levels = f"arity {found.tree.arity}, height {found.tree.height}: {found.tree.leaves} cells"
    return f"{size} leave {study.metric} off by {found.error:.2g} (root mean square), with a tree of {levels}."


def _around(study: Study, found: Forecast) -> list[Forecast]:
    fixed = Study(study.metric, study.privacy, study.scores, found.tree)
    sizes = sorted({max(round(found.clients * factor), 20) for factor in _AROUND})
    budgets = [None] if found.epsilon is None else [found.epsilon * factor for factor in (0.3, 1.0, 3.0)]
    return [fixed.forecast(size, budget) for budget in budgets for size in sizes]


def _row(found: Forecast) -> dict[str, Any]:
    error = found.error if found.error == found.error else None
    return {
        "clients": found.clients,
        "epsilon": found.epsilon,
        "error": error,
        "refused": found.refused,
        "arity": found.tree.arity,
        "height": found.tree.height,
        "buckets": found.tree.leaves,
    }


def _table(study: Study, around: Sequence[Forecast]) -> TextTable:
    rows = tuple(
        (
            f"{one.clients:,}",
            "-" if one.epsilon is None else f"{one.epsilon:.3g}",
            f"{one.error:.2g}" if one.enough else "drowned",
        )
        for one in around
    )
    return TextTable(f"Error of {study.metric} around that", ("clients", "epsilon", "error"), rows)


def write_picture(path: Path, study: Study, around: Sequence[Forecast]) -> Path:
    """Draw the error against the number of clients, one line an epsilon."""
    from fedcalib.report.curve_plots import trade_off
    from fedcalib.report.values import PlotLine

    lines = []
    for epsilon in dict.fromkeys(one.epsilon for one in around):
        shown = [one for one in around if one.epsilon == epsilon and one.enough]
        label = "exact" if epsilon is None else f"epsilon = {epsilon:.3g}"
        lines.append(PlotLine(label, [one.clients for one in shown], [one.error for one in shown]))
    picture = trade_off(lines, "clients", f"error of {study.metric}", f"Error of {study.metric}, {study.privacy}")
    write_all(path.parent, {path.name: picture.png})
    return path
