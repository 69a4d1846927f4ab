"""Watching scored flights by week at epsilon 1 a week: what is alarmed, what recalibrating changes, false alarms.

Run with `python -m benchmarks.domain_shift.monitoring`; writes weeks.csv and false_alarms.csv beside itself. The second
deals the same records to weeks at random, 200 times, on one record in twenty, and counts the alarms.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping

import numpy as np

import fedcalib as fc
from benchmarks.domain_shift.data import SHARED
from benchmarks.domain_shift.run import HERE
from fedcalib import metrics
from fedcalib.monitoring import in_process
from fedcalib.types import Array

WEEKS, RUNS, RATE = 13, 200, 0.01


def columns(share: float) -> dict[str, Array]:
    """Read the flights, or a share of them."""
    from pyarrow import parquet

    table = parquet.read_table(SHARED / "flights_scored" / "flights_scored.parquet")
    kept = np.random.default_rng(0).random(len(table)) < share
    found = {name: table[name].to_numpy()[kept] for name in ("score", "label", "day")}
    return {**found, "origin": table["origin"].combine_chunks().indices.to_numpy()[kept]}


def windows(flights: Mapping[str, Array], day: Array) -> dict[str, fc.Federation]:
    """Cut flights into weeks; what is left of an unfinished one is dropped."""
    cut = {}
    for week in range(WEEKS):
        rows = np.flatnonzero((day - 90) // 7 == week)
        records = fc.Records.of_scores(flights["score"][rows], flights["label"][rows])
        cut[f"week {week + 1}"] = fc.Federation.by_site(records, flights["origin"][rows])
    return cut


def watched() -> None:
    """Watch the real weeks, and measure what was served against what the model said, exactly."""
    flights = columns(1.0)
    weeks = windows(flights, flights["day"])
    ask = in_process(weeks, fc.DistributedDP(epsilon=1.0), randomness=fc.Simulated(0))
    timeline = fc.Monitor(RATE, fc.PlattScaling()).watch(list(weeks), ask)
    with (HERE / "weeks.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["week", "positive_rate", "mean_score", "ece_never", "ece_served", "private_ece", "alarms"])
        for window in timeline.windows:
            records = weeks[window.label].records
            served = metrics.binary_ece(window.served(records.score), records.labels)
            never = metrics.binary_ece(records.score, records.labels)
            rates = (records.labels.mean(), records.score.mean(), never, served, window.review.metrics.ece.value)
            raised = " ".join(alarm.signal for alarm in window.alarms)
            writer.writerow([window.label, *(f"{value:.4f}" for value in rates), raised])


def shuffled() -> None:
    """Deal records to weeks at random, so that nothing shifts, and count alarms."""
    flights = columns(0.05)
    with (HERE / "false_alarms.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["run", "windows_tested", "alarms"])
        for run in range(RUNS):
            weeks = windows(flights, np.random.default_rng(run).permutation(flights["day"]))
            ask = in_process(weeks, fc.DistributedDP(epsilon=1.0), randomness=fc.Simulated(run))
            timeline = fc.Monitor(RATE).watch(list(weeks), ask)
            writer.writerow([run, WEEKS - 1, len(timeline.alarms)])
            file.flush()
            print(f"\r{run + 1}/{RUNS}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    watched()
    shuffled()
