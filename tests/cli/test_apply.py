from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from fedcalib import load
from fedcalib.artifacts.scaling import Temperature
from fedcalib.artifacts.steps import Steps
from tests.cli.conftest import Shell, overconfident


@pytest.fixture
def calibrator(home: Path) -> Path:
    return Temperature(2.5).save(home / "calibrator.json")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("out", ["csv", "parquet"])
def test_columns_are_kept_and_the_probability_added(shell: Shell, calibrator: Path, suffix: str, out: str) -> None:
    table = overconfident(500, 3, 0).assign(note='a "quoted", odd\ntext')
    table.to_csv("in.csv", index=False) if suffix == "csv" else table.to_parquet("in.parquet")
    said = shell("apply", calibrator, f"in.{suffix}", "-o", f"out.{out}", "--format", "json")
    assert said.code == 0, said.err
    assert said.json["records"] == 500
    found = pd.read_csv("out.csv") if out == "csv" else pd.read_parquet("out.parquet")
    assert list(found.columns) == [*table.columns, "calibrated"]
    pd.testing.assert_frame_equal(
        found[table.columns].astype({"label": int, "patient": int, "score": float}), table, check_dtype=False
    )
    expected = Temperature(2.5)(table.score.to_numpy())
    np.testing.assert_allclose(found.calibrated, expected, rtol=1e-12)


def test_text_of_a_csv_stays_letter_by_letter(shell: Shell, calibrator: Path) -> None:
    Path("in.csv").write_text('id,score,empty\n007,0.50,\n"a,b",1e-3,x\n')
    shell("apply", calibrator, "in.csv", "-o", "out.csv")
    lines = Path("out.csv").read_text().splitlines()
    assert [line.rsplit(",", 1)[0] for line in lines] == ["id,score,empty", "007,0.50,", '"a,b",1e-3,x']


def test_types_of_a_parquet_file_stay(shell: Shell, calibrator: Path) -> None:
    table = overconfident(50, 3, 0).astype({"score": "float32", "site": "category"})
    table.to_parquet("in.parquet")
    shell("apply", calibrator, "in.parquet", "-o", "out.parquet")
    before, after = pq.read_schema("in.parquet"), pq.read_schema("out.parquet")
    assert [after.field(name).type for name in before.names] == [before.field(name).type for name in before.names]
    assert after.field("calibrated").type == "double"


def test_several_classes_get_a_column_each(shell: Shell, calibrator: Path) -> None:
    logits = np.random.default_rng(0).normal(size=(40, 3))
    np.savez("in.npz", logits=logits)
    assert shell("apply", calibrator, "in.npz", "-o", "out.parquet").code == 0
    found = pd.read_parquet("out.parquet")
    expected = Temperature(2.5).from_logits(logits)
    np.testing.assert_allclose(found[["calibrated_0", "calibrated_1", "calibrated_2"]], expected)


def test_records_without_a_score_stay_without_a_probability(shell: Shell, calibrator: Path) -> None:
    Path("in.csv").write_text("score\n0.5\n\nnan\n0.25\n")
    table = pd.DataFrame({"score": [0.5, np.nan, 0.25]})
    table.to_parquet("in.parquet")
    said = shell("apply", calibrator, "in.parquet", "-o", "out.csv", "--format", "json")
    assert "1 of 3 records" in said.json["warnings"][0]
    assert np.isnan(pd.read_csv("out.csv").calibrated).tolist() == [False, True, False]


def test_records_whose_steps_are_all_zero_are_counted(shell: Shell, home: Path) -> None:
    high = Steps.of_table(3, np.array([[0.0, 0.5]] * 3)).save(home / "steps.json")  # nothing below one half
    np.savez("in.npz", logits=np.log([[0.6, 0.2, 0.2], [0.4, 0.3, 0.3], [0.2, 0.4, 0.4]]))
    said = shell("apply", high, "in.npz", "-o", "out.parquet", "--format", "json")
    assert any("2 of 3 records" in warning for warning in said.json["warnings"])
    found = pd.read_parquet("out.parquet").to_numpy()
    np.testing.assert_allclose(found[:, -3:], [[1, 0, 0], [0.4, 0.3, 0.3], [0.2, 0.4, 0.4]])


def test_batches_of_a_long_file_fit_together(shell: Shell, calibrator: Path) -> None:
    table = pd.DataFrame({"score": np.linspace(0, 1, 150_000)})
    table.to_parquet("in.parquet")
    shell("apply", calibrator, "in.parquet", "-o", "out.csv")
    found = pd.read_csv("out.csv", float_precision="round_trip")
    np.testing.assert_array_equal(found.score, table.score)
    assert (np.diff(found.calibrated) >= 0).all()


BAD = {
    "late": (lambda: Path("in.csv").write_text("score\n" + "0.5\n" * 200_000 + "x\n"), "in.csv", "row 200001"),
    "taken": (lambda: Path("in.csv").write_text("score,calibrated\n0.5,1\n"), "in.csv", "'calibrated'"),
    "no scores": (lambda: Path("in.csv").write_text("label\n1\n"), "in.csv", "'label'"),
    "absent": (lambda: None, "in.csv", "No such file"),
    "no rows": (lambda: Path("in.csv").write_text("score\n"), "in.csv", "in.csv"),
}


@pytest.mark.parametrize("case", BAD)
def test_nothing_is_written_unless_everything_is(shell: Shell, calibrator: Path, home: Path, case: str) -> None:
    make, name, words = BAD[case]
    make()
    before = sorted(home.iterdir())
    said = shell("apply", calibrator, name, "-o", "out.csv")
    assert said.code == 2
    assert words in said.err
    assert sorted(home.iterdir()) == before


def test_wrong_outputs_and_calibrators_are_refused(shell: Shell, calibrator: Path, home: Path) -> None:
    Path("in.csv").write_text("score\n0.5\n")
    assert ".csv or .parquet" in shell("apply", calibrator, "in.csv", "-o", "out.xlsx").err
    assert "directory" in shell("apply", calibrator, "in.csv", "-o", ".").err
    assert "absent" in shell("apply", calibrator, "in.csv", "-o", "absent/out.csv").err
    assert "Missing option" in shell("apply", calibrator, "in.csv").err
    assert "not JSON" in shell("apply", "in.csv", "in.csv", "-o", "out.csv").err
    Steps.of_table(3, np.full((3, 4), 0.5)).save("three.json")
    said = shell("apply", "three.json", "in.csv", "-o", "out.csv")
    assert said.code == 2
    assert "3 classes" in said.err
    assert sorted(path.name for path in home.iterdir()) == ["calibrator.json", "in.csv", "three.json"]


def test_class_names_travel_from_the_labels_to_the_calibrated_columns(shell: Shell, home: Path) -> None:
    rng = np.random.default_rng(0)
    names = np.array(["rose", "setosa", "virginica"])
    probs = rng.dirichlet([1, 1, 1], 300)
    table = pd.DataFrame({f"prob_{name}": probs[:, k] for k, name in enumerate(names)})
    table["site"], table["label"] = np.arange(300) % 3, names[rng.integers(0, 3, 300)]
    table.to_csv("in.csv", index=False)
    flags = ("--method", "fed-bin", "--privacy", "open", "--holdout", "0", "--out", "out")
    assert shell("calibrate", "in.csv", *flags).code == 0
    document = json.loads(Path("out/calibrator.json").read_text())
    assert document["artifact"]["fields"]["class_names"] == list(names)
    columns = [f"calibrated_{name}" for name in names]
    assert shell("apply", "out/calibrator.json", "in.csv", "-o", "same.csv").code == 0
    table[[f"prob_{name}" for name in names[::-1]]].to_csv("turned.csv", index=False)
    assert shell("apply", "out/calibrator.json", "turned.csv", "-o", "other.csv").code == 0
    same, other = pd.read_csv("same.csv"), pd.read_csv("other.csv")
    assert list(same.columns[-3:]) == list(other.columns[-3:]) == columns
    pd.testing.assert_frame_equal(same[columns], other[columns])
    np.testing.assert_allclose(same[columns], load("out/calibrator.json")(probs), rtol=1e-9)


def test_names_that_the_calibrator_does_not_know_are_refused(shell: Shell, calibrator: Path) -> None:
    Path("in.csv").write_text("prob_a,prob_b,prob_c\n0.2,0.3,0.5\n")
    said = shell("apply", calibrator, "in.csv", "-o", "out.csv")
    assert said.code == 2 and "in the order" not in said.out and "--probs" in said.err
    Temperature(2.5).with_class_names(("a", "b", "d")).save("named.json")
    said = shell("apply", "named.json", "in.csv", "-o", "out.csv")
    assert said.code == 2 and "classes a, b, d" in said.err
    assert not Path("out.csv").exists()


def test_percentages_and_log_odds_are_applied(shell: Shell, calibrator: Path) -> None:
    Path("percent.csv").write_text("score\n90\n20\n")
    Path("odds.csv").write_text("z;note\n2,197225;a\n-1,386294;b\n")
    assert shell("apply", calibrator, "percent.csv", "-o", "a.csv").code == 2
    assert shell("apply", calibrator, "percent.csv", "-o", "a.csv", "--percent").code == 0
    said = shell("apply", calibrator, "odds.csv", "-o", "b.csv", "--logits", "z")
    assert said.code == 0 and "semicolon-separated with decimal comma" in said.err
    expected = Temperature(2.5)([0.9, 0.2])
    np.testing.assert_allclose(pd.read_csv("a.csv").calibrated, expected)
    np.testing.assert_allclose(pd.read_csv("b.csv").calibrated, expected, rtol=1e-6)


def test_what_would_lose_a_column_or_the_input_is_refused(shell: Shell, calibrator: Path) -> None:
    Path("in.csv").write_text("score,x,x\n0.5,1,2\n")
    twice = shell("apply", calibrator, "in.csv", "-o", "out.csv")
    assert (twice.code, "'x' twice" in twice.err, Path("out.csv").exists()) == (2, True, False)
    Path("in.csv").write_text("score\n0.5\n")
    over = shell("apply", calibrator, "in.csv", "-o", "../" + Path.cwd().name + "/in.csv")
    assert (over.code, "another file with --out" in over.err) == (2, True)
    assert Path("in.csv").read_text() == "score\n0.5\n"
