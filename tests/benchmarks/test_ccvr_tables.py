"""The repair benchmark's tables say what its rows say."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ccvr.tables import SHOWN, annex, bars, gains, plot, repairs_table, summary


def rows() -> list[dict[str, str]]:
    setting = {"data": "d", "alpha": "0.05", "base": "FedAvg", "records": "9", "rounds": "2", "epochs": "1"}
    setting["batch"] = "64"
    rest = {
        "ece": "5",
        "cwece": "1",
        "nll": "0.5",
        "worst_class": "10",
        "clients_better": "7",
        "processor_seconds": "3",
    }
    found = []
    for seed, before in enumerate((50.0, 60.0)):
        found.append({**setting, "seed": str(seed), "repair": "none", "accuracy": str(before), **rest})
        for place, repair in enumerate(SHOWN):
            accuracy = before + (place + 1) * (seed + 1)
            found.append({**setting, "seed": str(seed), "repair": repair, "accuracy": str(accuracy), **rest})
    return found


def test_gains_are_taken_run_by_run() -> None:
    before = [row for row in rows() if row["repair"] == "none"]
    after = [row for row in rows() if row["repair"] == "CCVR"]
    assert gains(after[::-1], before) == [2.0, 1.0]
    assert "| CCVR | 56.50 ± 7.78 | +1.50 (+1.00 to +2.00) |" in repairs_table(rows())


def test_every_setting_has_a_line_and_pictures_are_drawn(tmp_path: Path) -> None:
    text = summary(rows()) + annex(rows())
    assert "| d, 0.05, FedAvg | 9 x 2 x 1 x 64 | 2 | 55.00 ± 7.07 | +1.50 |" in text
    assert "9 records, 2 rounds of 1 local epochs, batches of 64, 2 runs, 3 s of training each." in text
    plot(rows(), tmp_path / "a.png")
    bars(rows(), tmp_path / "b.png")
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("a.png", "b.png"))
