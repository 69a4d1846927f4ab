"""Figure 7 of the paper and its rows of tables 2 and 3: next characters of Shakespeare, calibrated by role.

Run with `python -m benchmarks.maddock.roles --data DIRECTORY`, of speeches.parquet. An LSTM is trained by FedAvg first
(`benchmarks.base_models.shakespeare`), where that has not been done. Half of the characters in the last tenth of what
a role says calibrate and half measure, as in the paper. Rows that roles.csv has are kept.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

import fedcalib as fc
from benchmarks.maddock.measure import row
from benchmarks.maddock.published import KEY, Case, binned, calibrated, line, table_2, table_3
from benchmarks.maddock.small_models import CNNS
from benchmarks.progress import Sheet

HERE = Path(__file__).parent
LOGITS = CNNS / "shakespeare-50-30.npz"
SLOW = ("FedOPVector", "FedCal")
ASKED = (1, 4, 30, 60)  # rounds, beside the twelve of table 2


@cache
def roles() -> fc.Federation:
    """What every role says last, with the LSTM's logits."""
    with np.load(LOGITS) as file:
        records = fc.Records.of_logits(file["logits"].astype(np.float64), file["labels"])
        return fc.Federation.grouped(records, file["owner"], names=[str(name) for name in file["roles"]])


def by_rounds(totals: tuple[float, ...]) -> Iterator[Case]:
    """The figure's methods over rounds; fits of many parameters up to twelve rounds, which table 2 has."""
    for rounds in ASKED:
        for series, method in binned(rounds, totals):
            yield Case("7", rounds, series, method)
        yield Case("7", rounds, "FedTemp", fc.FedTemp.as_published(rounds=rounds))


def cases(totals: tuple[float, ...]) -> Iterator[Case]:
    """As published; Auto is not among them."""
    wanted = (*table_2(totals), *table_3(1.0), *by_rounds(totals))
    yield from (case for case in wanted if case.series != "Auto" and "N'" not in case.series)


def fill(sheet: Sheet, run: int, slow: bool) -> None:
    """One run of the methods that take long, or of the others."""
    test, fit = roles().split(0.5, seed=run)
    base = row(fc.artifacts.Identity(), test.records)
    totals = tuple(np.bincount(fit.records.labels, minlength=fit.records.classes).astype(float).tolist())
    for case in cases(totals):
        key = (case.figure, "shakespeare", "lstm", f"{case.x:g}", case.series, run)
        if (case.series in SLOW) == slow and not sheet.has(*key):
            sheet.add(line(key, row(calibrated(case, fit, " ".join(map(str, key))), test.records), base))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="the paper has five")
    parser.add_argument("--slow-runs", type=int, default=2, help="of local fits of many parameters")
    parser.add_argument("--out", type=Path, default=HERE / "roles.csv")
    parser.add_argument("--data", type=Path, help="the directory of speeches.parquet, if the LSTM is to be trained")
    told = parser.parse_args()
    if told.data and not LOGITS.exists():
        command = [sys.executable, "-m", "benchmarks.base_models.shakespeare", "--fewest", "50", "--rounds", "30"]
        subprocess.run([*command, "--data", str(told.data)], check=True)
    sheet = Sheet(told.out, KEY)
    for run in range(told.runs):
        fill(sheet, run, slow=False)
    for run in range(told.slow_runs):
        fill(sheet, run, slow=True)


if __name__ == "__main__":
    main()
