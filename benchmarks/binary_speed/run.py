"""A complete evaluation of a million clients, against one central AUC; local reports against two LDP libraries.

Run with `python -m benchmarks.binary_speed.run`; writes results.csv beside itself. Times are processor seconds of one
thread, the best of several; only the ratios mean anything. The two LDP libraries simulate each report in turn, so
they are timed on fewer clients and compared by the time a client takes.
"""

from __future__ import annotations

import csv
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

import fedcalib as fc

HERE = Path(__file__).parent
MILLION = 1_000_000
PEER_CLIENTS = 3_000


def best(work: Callable[[], object], times: int = 3) -> float:
    spans = []
    for _ in range(times):
        start = time.process_time()
        work()
        spans.append(time.process_time() - start)
    return min(spans)


def clients(count: int) -> tuple[fc.Federation, np.ndarray, np.ndarray]:
    scores, labels = fc.planning.ScoreModel().draw(count, np.random.default_rng(0))
    return fc.Federation(fc.Records.of_scores(scores, labels), np.arange(count + 1)), scores, labels


def evaluate(federation: fc.Federation, privacy: fc.privacy.Privacy) -> None:
    """Every metric with its interval, all curves with bands, and the reliability diagram."""
    method = fc.FederatedMetrics(records=len(federation.records))
    found = fc.run(method, fc.InProcess(federation), privacy, randomness=fc.Simulated(0)).artifact
    _ = found.measures(), found.roc(), found.pr(), found.decision_curve(), found.reliability()


def release(federation: fc.Federation, privacy: fc.privacy.Privacy) -> None:
    fc.run(fc.ScoreCurves(), fc.InProcess(federation), privacy, randomness=fc.Simulated(0))


def levels(scores: np.ndarray, labels: np.ndarray) -> list[tuple[int, int]]:
    """One (cells, cell) a client: a level of the tree drawn at random, and the record's place in it."""
    drawn = np.random.default_rng(1).integers(1, 6, len(scores))
    return [
        (2 * 4**level, int(label) * 4**level + min(int(score * 4**level), 4**level - 1))
        for level, score, label in zip(drawn.tolist(), scores.tolist(), labels.tolist(), strict=True)
    ]


def pure_ldp(reports: list[tuple[int, int]]) -> None:
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    domains = sorted({cells for cells, _ in reports})
    asking = {d: UEClient(5.0, d, use_oue=True, index_mapper=lambda x: x) for d in domains}
    reading = {d: UEServer(5.0, d, use_oue=True, index_mapper=lambda x: x) for d in domains}
    for cells, cell in reports:
        reading[cells].aggregate(asking[cells].privatise(cell))
    for d in domains:
        reading[d].estimate_all(range(d), suppress_warnings=True)


def multi_freq_ldpy(reports: list[tuple[int, int]]) -> None:
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

    heard: dict[int, list[np.ndarray]] = {}
    for cells, cell in reports:
        heard.setdefault(cells, []).append(UE_Client(cell, cells, 5.0))
    for sent in heard.values():
        UE_Aggregator_MI(sent, 5.0)


def against_scikit_learn() -> list[dict[str, str]]:
    federation, scores, labels = clients(MILLION)
    central = best(partial(roc_auc_score, labels, scores))
    models = {"SecAgg": fc.SecAgg(), "DistributedDP(1)": fc.DistributedDP(1.0)}
    return [
        _row(
            f"complete evaluation, 1M clients, {name}",
            best(partial(evaluate, federation, privacy)),
            "scikit-learn roc_auc_score",
            central,
        )
        for name, privacy in models.items()
    ]


def against_ldp_libraries() -> list[dict[str, str]]:
    federation, scores, labels = clients(MILLION)
    ours = best(partial(release, federation, fc.LocalDP(5.0))) / MILLION
    few = levels(scores[:PEER_CLIENTS], labels[:PEER_CLIENTS])
    multi_freq_ldpy(few)  # compiles
    peers = {"pure-ldp": pure_ldp, "multi-freq-ldpy": multi_freq_ldpy}
    what = "local reports of a tree, seconds per client, LocalDP(5)"
    return [_row(what, ours, name, best(partial(peer, few), 2) / PEER_CLIENTS) for name, peer in peers.items()]


def ten_million() -> list[dict[str, str]]:
    spans = {}
    for count in (MILLION, 10 * MILLION):
        federation, _, _ = clients(count)
        spans[count] = best(partial(evaluate, federation, fc.DistributedDP(1.0)), 2)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    grown = _row("10M clients, DistributedDP(1)", spans[10 * MILLION], "ten times 1M clients", 10 * spans[MILLION])
    memory = dict.fromkeys(grown, "") | {"what": "largest memory of this benchmark, GiB", "ours": f"{peak:.2f}"}
    return [grown, memory]


def main() -> None:
    rows = [*against_scikit_learn(), *against_ldp_libraries(), *ten_million()]
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(row)


def _row(what: str, ours: float, peer: str, theirs: float) -> dict[str, str]:
    return {
        "what": what, "ours": f"{ours:.3g}", "peer": peer, "theirs": f"{theirs:.3g}",
        "times_faster": f"{theirs / ours:.1f}",
    }  # fmt: skip


if __name__ == "__main__":
    main()
