"""Watching scored flights by week at epsilon 1 per week: what is alarmed, what recalibrating changes, false alarms.

Run with `python -m benchmarks.domain_shift.monitoring`; writes weeks.csv and false_alarms.csv beside itself. The second
permutes the days of all records, 200 times, watches each time without a minimum effect, and counts the alarms; it goes
on where it stopped.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np

import fedcalib as fc
from benchmarks.domain_shift.data import SHARED
from benchmarks.domain_shift.run import HERE
from fedcalib import metrics
from fedcalib.types import Floats, Ints
from fedcalib.workflows.drift import in_process

WEEKS, RUNS, RATE = 13, 200, 0.01
SIGNALS = ("gap", "confidence", "auc")


@final
@dataclass(frozen=True, eq=False)
class Flights:
    """All scored flights: what was said, what came, when and where."""

    score: Floats
    label: Ints
    day: Ints
    airport: Ints

    @classmethod
    def read(cls) -> Flights:
        """Read them."""
        from pyarrow import parquet

        table = parquet.read_table(SHARED / "flights_scored" / "flights_scored.parquet")
        origin = table["origin"].combine_chunks().indices.to_numpy()
        airport = np.unique(origin, return_inverse=True)[1].astype(np.int64)
        return cls(*(table[name].to_numpy() for name in ("score", "label", "day")), airport)

    def windows(self, day: Ints) -> dict[str, fc.Federation]:
        """Cut flights into weeks by some column of days; what is left of an unfinished one is dropped."""
        week = (day - 90) // 7
        order = np.lexsort((self.airport, week))
        edges = np.searchsorted(week[order], np.arange(WEEKS + 1))
        airports = int(self.airport.max()) + 1
        cut = {}
        for number, (start, stop) in enumerate(pairwise(edges), start=1):
            rows = order[start:stop]
            records = fc.Records.of_scores(self.score[rows], self.label[rows])
            cut[f"week {number}"] = fc.Federation.grouped(records, self.airport[rows], airports)
        return cut


def watched() -> None:
    """Watch the real weeks, and measure what was served against what the model said, exactly."""
    flights = Flights.read()
    weeks = flights.windows(flights.day)
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
    """Permute the days of all records, so that nothing shifts, and count alarms."""
    flights, path = Flights.read(), HERE / "false_alarms.csv"
    done = len(path.read_text().splitlines()) - 1 if path.exists() else 0
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not path.stat().st_size:
            writer.writerow(["run", "records", "windows_tested", "alarms", *SIGNALS])
        for run in range(max(done, 0), RUNS):
            weeks = flights.windows(np.random.default_rng(run).permutation(flights.day))
            ask = in_process(weeks, fc.DistributedDP(epsilon=1.0), randomness=fc.Simulated(run))
            timeline = fc.Monitor(RATE, min_effect=0.0).watch(list(weeks), ask)
            raised = [alarm.signal for window in timeline.windows for alarm in window.alarms]
            records = sum(len(week.records) for week in weeks.values())
            by_signal = (raised.count(signal) for signal in SIGNALS)
            writer.writerow([run, records, WEEKS - 1, len(timeline.alarms), *by_signal])
            file.flush()
            print(f"\r{run + 1}/{RUNS}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    watched()
    shuffled()
