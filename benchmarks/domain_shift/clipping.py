"""The clipping study of the published Figure 52: NLL-T at several cuts of the loss, beside Acc-T.

Run with `python -m benchmarks.domain_shift.clipping`; writes clipping.csv beside itself. 50 sources of 30 samples,
epsilon 1, 500 splits. Snow images cannot be had here; brightness and the other mild corruptions stand in for it.
"""

from __future__ import annotations

import csv

import numpy as np

from benchmarks.domain_shift import contenders as c
from benchmarks.domain_shift.data import corrupted
from benchmarks.domain_shift.pool import Pool, Trials
from benchmarks.domain_shift.run import HERE, TRIALS, WIDE

CUTS = (0.5, 1.0, 2.0, 3.0, 5.0, 7.3, 10.0, 15.0, 20.0)
CASES = (("brightness", 1), ("saturate", 1), ("brightness", 5))


def main() -> None:
    """Measure every cut."""
    methods: dict[str, c.Contender] = {f"NLL-T cut at {cut:g}": c.NLLTGolden(worst=cut) for cut in CUTS}
    methods |= {f"NLL-T wide cut at {cut:g}": c.NLLTGolden(high=WIDE, worst=cut) for cut in CUTS}
    methods |= {"Acc-T": c.AccTGolden(), "Ours: AccT": c.AccTCurve()}
    with (HERE / "clipping.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["corruption", "severity", "method", "ece", "ece_sd"])
        for corruption, severity in CASES:
            trials = Trials(Pool(*corrupted(corruption, severity)), 50, 30, TRIALS, np.random.default_rng(52))
            for name, method in methods.items():
                ece, _ = method.measures(trials, 1.0)
                writer.writerow([corruption, severity, name, f"{ece.mean():.6f}", f"{ece.std(ddof=1):.6f}"])
                print(corruption, severity, name, f"{ece.mean():.4f}")


if __name__ == "__main__":
    main()
