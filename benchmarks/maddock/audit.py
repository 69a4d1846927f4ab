"""Audit what a run releases about a whole client: the largest client there can be, against its absence.

Run with `python -m benchmarks.maddock.audit [NAME [DRAWS]]`; writes audit.csv beside itself, a line at a time, and the
README's section on audits from it. NAME, such as `runs:FedBBQ` or `runs`, picks lines and keeps the others.

*Releases* draw one answer's noise many times over: fast, and all that anybody sees of a client in a method that asks
once. *Runs* go the whole way every time: plan, clients' cuts, sum, noise, transcript, and whatever a later question
makes of an earlier answer.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fedcalib as fc
from fedcalib.audit.mechanisms import audit_mechanism
from fedcalib.audit.result import Audit
from fedcalib.audit.runs import audit_run

HERE = Path(__file__).parent
EPSILON, DELTA = 1.0, 1e-5
CLASSES = 3
DRAWS = 20_000
CONFIDENCE = 0.999999
COLUMNS = ("what", "method", "questions", "draws", "confidence", "epsilon_at_least", "epsilon_claimed", "delta")


def clients(extra: fc.Records) -> fc.Federation:
    """Three quiet clients, and one more."""
    rng = np.random.default_rng(0)
    quiet = [fc.Records.of_logits(rng.normal(size=(4, CLASSES)), rng.integers(CLASSES, size=4)) for _ in range(3)]
    return fc.Federation.of([*quiet, extra])


def loudest() -> fc.Records:
    """A client of many records, all alike, all certain and wrong: every clip binds."""
    logits = np.tile(20.0 * np.eye(CLASSES)[0], (100, 1))
    return fc.Records.of_logits(logits, np.full(100, CLASSES - 1))


Audited = tuple[fc.Method[fc.Calibrator], fc.UserGaussian]
GUARDED = fc.UserGaussian(EPSILON, DELTA)

METHODS: dict[str, Audited] = {
    "FedBBQ": (fc.FedBBQ(finest=2), fc.UserGaussian(EPSILON, DELTA, clip=5.0)),
    "FedTemp": (fc.FedTemp(rounds=1), GUARDED),
    "ResidualBinning": (fc.ResidualBinning(cells=4), GUARDED),
    "OneShotTemperature": (fc.OneShotTemperature(), GUARDED),
}

RUNS: dict[str, Audited] = {
    "FedBBQ": METHODS["FedBBQ"],
    "FedBBQ, three rounds": (fc.FedBBQ(finest=2, rounds=3), fc.UserGaussian(EPSILON, DELTA, clip=5.0)),
    "FedTemp": METHODS["FedTemp"],
    "FedTemp, two rounds": (fc.FedTemp(rounds=2), GUARDED),
    "ResidualBinning": METHODS["ResidualBinning"],
    "OneShotTemperature, then ResidualBinning": (
        fc.Pipeline((fc.OneShotTemperature(weight=0.2), fc.ResidualBinning(cells=4, weight=0.8))),
        GUARDED,
    ),
}


def audited(name: str, draws: int, seed: int = 1) -> Audit:
    """Bound a method's epsilon from below by what its one release tells apart."""
    method, privacy = METHODS[name]
    present, absent = clients(loudest()), clients(fc.Records.empty(CLASSES))
    plan, everyone = fc.Plan.of(method, present.schema), fc.Everyone()
    cohort = everyone.cohort(len(present))
    (query,) = plan.queries
    mechanism = privacy.mechanism(query, plan, cohort, everyone)
    return audit_mechanism(
        mechanism,
        query,
        present,
        absent,
        cohort=cohort,
        claimed=EPSILON,
        delta=DELTA,
        draws=draws,
        randomness=fc.Simulated(seed),
    )


def audited_runs(name: str, runs: int, seed: int = 2) -> Audit:
    """Bound a method's epsilon from below by what whole runs tell apart: the largest client's, and none."""
    method, privacy = RUNS[name]
    present, absent = clients(loudest()), clients(fc.Records.empty(CLASSES))
    return audit_run(method, present, absent, privacy, runs=runs, confidence=CONFIDENCE, randomness=fc.Simulated(seed))


KINDS: dict[str, tuple[dict[str, Audited], Callable[[str, int], Audit]]] = {
    "releases": (METHODS, audited),
    "runs": (RUNS, audited_runs),
}


def main(only: str | None, draws: int) -> None:
    """Audit, and keep what was audited before of what is not audited now."""
    path = HERE / "audit.csv"
    kept = {
        (line["what"], line["method"]): line for line in csv.DictReader(path.read_text().splitlines()) if "what" in line
    }
    for what, (methods, audit) in KINDS.items():
        for name, (method, _) in methods.items():
            if only in (None, what, f"{what}:{name}"):
                kept[what, name] = _line(what, name, method, audit(name, draws))
                _write(path, kept)
    (HERE / "README.md").write_text(with_section((HERE / "README.md").read_text(), list(kept.values())))


def _line(what: str, name: str, method: fc.Method[fc.Calibrator], found: Audit) -> dict[str, str]:
    questions = len(fc.Plan.of(method, clients(loudest()).schema).queries)
    values = (what, name, questions, found.draws, found.confidence, f"{found.lower_epsilon:.4f}", found.claimed, DELTA)
    print(*values, sep=" | ", flush=True)
    return dict(zip(COLUMNS, map(str, values), strict=True))


def _write(path: Path, kept: dict[tuple[str, str], dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        sheet = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        sheet.writeheader()
        sheet.writerows(
            kept[what, name] for what, (methods, _) in KINDS.items() for name in methods if (what, name) in kept
        )


TITLE = "## Audits"


def with_section(page: str, lines: list[dict[str, str]]) -> str:
    """Replace the section on audits, or put it at the end."""
    before, _, rest = page.partition(f"{TITLE}\n")
    after = rest[rest.index("\n## ") + 1 :] if "\n## " in rest else ""
    return f"{before.rstrip()}\n\n{section(lines)}\n{after}".rstrip() + "\n"


def section(lines: list[dict[str, str]]) -> str:
    """Say what was audited, and what was found."""
    most = max((float(line["epsilon_at_least"]) for line in lines), default=0.0)
    verdict = "so the claims stand" if most <= EPSILON else "so a claim is broken"
    head = [
        TITLE,
        "",
        "A client of 100 records, all certain and wrong, so that every clip binds, against its absence among three",
        "quiet clients; as often with it as without. *Releases* draw the noise of one answer; *runs* are whole runs",
        "(`audit_run`), from the plan to the artifact, scored by all their answers at once. Bounds hold with",
        f"confidence {CONFIDENCE}. The largest is {most:.2f} of the claimed {EPSILON:g}, {verdict}.",
        "",
        "| what | method | questions | draws | epsilon at least | claimed |",
        "|---|---|--:|--:|--:|--:|",
    ]
    rows = [
        f"| {line['what']} | {line['method']} | {line['questions']} | {int(line['draws']):,} "
        f"| {line['epsilon_at_least']} | {line['epsilon_claimed']} |"
        for line in lines
    ]
    return "\n".join([*head, *rows]) + "\n"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None, int(sys.argv[2]) if len(sys.argv) > 2 else DRAWS)
