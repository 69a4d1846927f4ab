"""Audit what a run releases about a whole client: the largest client there can be, against its absence.

Run with `python -m benchmarks.maddock.audit [NAME [DRAWS]]`; writes audit.csv beside itself, a line at a time, and
the section of annex.md on audits from it. NAME, such as `runs:FedBBQ` or `runs`, picks lines and keeps the others.

*Releases* draw one answer's noise many times over: fast, and all that anybody sees of a client in a method that asks
once. *Runs* go the whole way every time: plan, clients' cuts, sum, noise, transcript, and whatever a later question
makes of an earlier answer.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import fedcalib as fc
from fedcalib.audit.evidence import Audit
from fedcalib.audit.mechanisms import audit_mechanism
from fedcalib.audit.runs import audit_run

HERE = Path(__file__).parent
EPSILON, DELTA = 1.0, 1e-5
CLASSES = 3
DRAWS = 20_000
CONFIDENCE = 0.999999
COLUMNS = ("what", "method", "questions", "draws", "confidence", "epsilon_at_least", "epsilon_claimed", "delta")


def clients(extra: fc.Records, idle: int = 0) -> fc.Federation:
    """Three quiet clients, and one more; `idle` others hold nothing, so that samples are never too small."""
    rng = np.random.default_rng(0)
    quiet = [fc.Records.of_logits(rng.normal(size=(4, CLASSES)), rng.integers(CLASSES, size=4)) for _ in range(3)]
    return fc.Federation.of([*quiet, *[fc.Records.empty(CLASSES)] * idle, extra])


def loudest() -> fc.Records:
    """A client of many records, all alike, all certain and wrong: every clip binds."""
    logits = np.tile(20.0 * np.eye(CLASSES)[0], (100, 1))
    return fc.Records.of_logits(logits, np.full(100, CLASSES - 1))


def wavering() -> fc.Records:
    """A client of many records, all alike and wrong, just unsure enough that residuals and their spread both bind."""
    share = 0.3709  # where the spread's norm is 0.42 of the residuals', as their clips are
    logits = np.tile(np.log([share, share, 1 - 2 * share]), (100, 1))
    return fc.Records.of_logits(logits, np.full(100, CLASSES - 1))


EVERYONE = fc.Everyone()


@dataclass(frozen=True)
class Setting:
    """What is run, and the client that shows most of itself there."""

    method: fc.Method[fc.Calibrator]
    unit: Callable[[], fc.Records] = loudest
    clip: float | None = None
    drawn: fc.cohort.Participation = EVERYONE
    idle: int = 0

    @property
    def privacy(self) -> fc.UserGaussian:
        """Promise the same everywhere."""
        return fc.UserGaussian(EPSILON, DELTA, clip=self.clip)

    def sides(self) -> tuple[fc.Federation, fc.Federation]:
        """Give the clients with the unit and without it."""
        return clients(self.unit(), self.idle), clients(fc.Records.empty(CLASSES), self.idle)


ROUNDS = 12
SAMPLED = fc.Poisson(0.1)
PIPELINE = fc.methods.Pipeline((fc.OneShotTemperature(weight=0.2), fc.methods.ResidualBinning(cells=4, weight=0.8)))

METHODS = {
    "FedBBQ": Setting(fc.FedBBQ(finest=2), clip=5.0),
    "FedTemp": Setting(fc.FedTemp(rounds=1)),
    "ResidualBinning": Setting(fc.methods.ResidualBinning(cells=4), wavering),
    "OneShotTemperature": Setting(fc.OneShotTemperature()),
    "BoundedTemperature": Setting(fc.BoundedTemperature()),
}

RUNS = {
    "FedBBQ": METHODS["FedBBQ"],
    "FedBBQ, three rounds": Setting(fc.FedBBQ(finest=2, rounds=3), clip=5.0),
    "FedBBQ, three disjoint cohorts": Setting(fc.FedBBQ(finest=2, rounds=3), clip=5.0, drawn=fc.Disjoint(3), idle=8),
    "FedBBQ, 12 rounds, 10% drawn": Setting(fc.FedBBQ(finest=2, rounds=ROUNDS), clip=5.0, drawn=SAMPLED, idle=196),
    "FedTemp": METHODS["FedTemp"],
    "FedTemp, two rounds": Setting(fc.FedTemp(rounds=2)),
    "FedTemp, 12 rounds, 10% drawn": Setting(fc.FedTemp(rounds=ROUNDS), drawn=SAMPLED, idle=196),
    "ResidualBinning": METHODS["ResidualBinning"],
    "OneShotTemperature, then ResidualBinning": Setting(PIPELINE, wavering),
    "BoundedTemperature": METHODS["BoundedTemperature"],
}


def audited(name: str, draws: int, seed: int = 1) -> Audit:
    """Bound a method's epsilon from below by what its one release tells apart."""
    setting = METHODS[name]
    present, absent = setting.sides()
    plan = fc.method.Plan.of(setting.method, present.schema)
    cohort = setting.drawn.cohort(len(present))
    (query,) = plan.queries
    mechanism = setting.privacy.mechanism(query, plan, cohort, setting.drawn)
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
    setting = RUNS[name]
    return audit_run(
        setting.method,
        *setting.sides(),
        setting.privacy,
        participation=setting.drawn,
        runs=runs,
        confidence=CONFIDENCE,
        randomness=fc.Simulated(seed),
    )


KINDS: dict[str, tuple[dict[str, Setting], Callable[[str, int], Audit]]] = {
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
        for name, setting in methods.items():
            if only in (None, what, f"{what}:{name}"):
                kept[what, name] = _line(what, name, setting, audit(name, draws))
                _write(path, kept)
    (HERE / "annex.md").write_text(with_section((HERE / "annex.md").read_text(), list(kept.values())))


def _line(what: str, name: str, setting: Setting, found: Audit) -> dict[str, str]:
    questions = len(fc.method.Plan.of(setting.method, setting.sides()[0].schema).queries)
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
    verdict = "so no claim is refuted" if most <= EPSILON else "so a claim is broken"
    head = [
        TITLE,
        "",
        "The client that shows most of itself against its absence, among three quiet clients; as often with it as",
        "without. It holds 100 records, all alike and wrong: certain, so that every clip binds, or, for residual",
        "binning, just unsure enough that both its clips bind at once. *Releases* draw the noise of one answer; *runs*",
        "are whole runs (`audit_run`), from the plan to the artifact, scored by the likelihood ratio of all their",
        f"answers. Where {SAMPLED.rate:.0%} of the clients are drawn a round (196 more hold nothing), the claim counts",
        "on the draw being secret: the adversary knows everybody's but the client's own. Of disjoint cohorts it knows",
        "all. Error rates are read as those of Gaussian noise, on everybody's sum or on a Poisson sample's, and bounds",
        f"hold with confidence {CONFIDENCE}. The largest is {most:.2f} of the claimed {EPSILON:g}, {verdict}.",
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
