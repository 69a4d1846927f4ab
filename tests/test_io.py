from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedcalib
from fedcalib.data import Columns, ReadingNote, RejectedRecords, from_frame, read, read_checked
from fedcalib.errors import InputError
from fedcalib.federation import Federation
from tests.examples import examples
from tests.memory import PRINT_PEAK


def frame(n: int = 40, classes: int = 2, seed: int = 0, kind: str = "score") -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns: dict[str, object] = {"site": rng.choice(["north", "south", "east"], n)}
    if kind == "score":
        columns["score"] = rng.random(n)
    else:
        logits = rng.normal(size=(n, classes))
        values = logits if kind == "logit" else np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        columns |= {f"{kind}_{j}": values[:, j] for j in range(classes)}
    columns["label"] = np.arange(n) % classes
    return pd.DataFrame(columns)


def write(table: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    elif path.suffix == ".npz":
        np.savez(path, **{name: table[name].to_numpy(dtype=_plain(table[name])) for name in table})
    else:
        table.to_csv(path, index=False, sep="\t" if path.name.endswith("tsv") else ",")
    return path


def _plain(column: pd.Series) -> object:
    return str if not pd.api.types.is_numeric_dtype(column) else column.dtype


def same(left: Federation, right: Federation) -> bool:
    return (
        left.names == right.names
        and np.array_equal(left.offsets, right.offsets)
        and np.array_equal(left.records.given, right.records.given)
        and np.array_equal(left.records.labels, right.records.labels)
        and left.records.are_logits == right.records.are_logits
    )


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "tsv", "parquet", "npz"])
@pytest.mark.parametrize(("kind", "classes"), [("score", 2), ("logit", 3), ("p", 12)])
def test_every_format_reads_as_the_frame_itself(tmp_path: Path, suffix: str, kind: str, classes: int) -> None:
    table = frame(classes=classes, kind=kind)
    federation = read(write(table, tmp_path / f"all.{suffix}"))
    assert same(federation, from_frame(table))
    assert federation.names == ("east", "north", "south")
    assert federation.records.classes == classes
    assert federation.records.are_logits == (kind == "logit")
    east = table[table.site == "east"]
    assert federation.client(0).labels.tolist() == east.label.tolist()


def test_classes_come_in_numeric_order(tmp_path: Path) -> None:
    table = frame(classes=12, kind="p")
    shuffled = table[sorted(table.columns)]  # p_10 stands before p_2
    assert same(read(write(shuffled, tmp_path / "a.csv")), from_frame(table))
    assert same(from_frame(table, probs=[f"p_{j}" for j in range(12)]), from_frame(table))
    assert same(from_frame(table, probs=",".join(f"p_{j}" for j in range(12))), from_frame(table))


def test_a_file_is_a_site_when_there_is_no_site_column(tmp_path: Path) -> None:
    for seed, site in enumerate(["b", "a", "c"]):
        write(frame(10 + seed, seed=seed).drop(columns="site"), tmp_path / f"{site}.csv")
    federation = read(str(tmp_path / "*.csv"))
    assert federation.names == ("a", "b", "c")
    assert federation.sizes.tolist() == [11, 10, 12]


def test_many_files_share_a_site_column(tmp_path: Path) -> None:
    table = frame(60).rename(columns={"site": "hospital", "label": "sick", "score": "risk"})
    paths = [write(table[:25], tmp_path / "1.parquet"), write(table[25:], tmp_path / "2.csv")]
    federation = read(paths, site="hospital", label="sick", score="risk")
    assert same(federation, from_frame(table, site="hospital", label="sick", score="risk"))


def test_a_matrix_in_npz_is_one_column_a_class(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.savez(tmp_path / "m.npz", logits=logits, label=np.arange(30) % 4, other=np.zeros((2, 2, 2)))
    federation = read(tmp_path / "m.npz", logits="logits", one_site=True)
    assert np.array_equal(federation.records.given, logits)
    assert federation.records.given.dtype == np.float32
    assert same(federation, read(tmp_path / "m.npz", one_site=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_precision_is_kept(tmp_path: Path, dtype: str) -> None:
    table = frame()
    table["score"] = table["score"].astype(dtype)
    records = read(write(table, tmp_path / "a.parquet")).records
    assert records.given.dtype == np.dtype(dtype)
    assert sorted(records.score.tolist()) == sorted(table.score.tolist())


def test_categories_integers_truths_and_padding_are_understood(tmp_path: Path) -> None:
    plain = pd.DataFrame({"site": [7, 7, 9, 9], "score": [0.5, 0.25, 1, 0], "label": [1, 0, 1, 0]})
    category = plain.assign(site=plain.site.astype(str).astype("category"), label=plain.label.astype(bool))
    (tmp_path / "padded.csv").write_text("label, x,score,site\nTrue,0, 0.5,7\nFalse,0,0.25 ,7\n1.0,0,1,9 \n0,0,0e3,9\n")
    assert same(from_frame(category), from_frame(plain))
    assert same(read(tmp_path / "padded.csv"), from_frame(plain))


def test_names_that_look_like_nothing_stay_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("site,score,label\nNA,0.5,0\nnull,0.5,1\n")
    assert read(tmp_path / "a.csv").names == ("NA", "null")


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.floats(0, 1), st.integers(0, 1)), min_size=2, max_size=50))
def test_csv_and_parquet_agree_bit_by_bit(tmp_path: Path, rows: list[tuple[str, float, int]]) -> None:
    table = pd.DataFrame([*rows, ("x", 0.5, 0), ("x", 0.5, 1)], columns=["site", "score", "label"])
    assert same(read(write(table, tmp_path / "a.csv")), read(write(table, tmp_path / "a.parquet")))


def test_one_record_of_each_unit_is_kept_at_each_site(tmp_path: Path) -> None:
    table = frame(200)
    table["patient"] = [f"p{i % 30}" for i in range(200)]
    path = write(table, tmp_path / "a.csv")
    with pytest.warns(ReadingNote, match="81 of 200 records were kept: one per 'patient' and site"):
        federation = read(path, unit="patient", seed=1)
    assert len(federation.records) == len(table.groupby(["site", "patient"]))
    assert federation.records.unit is None
    columns = Columns(unit="patient")
    assert same(federation, read_checked(path, columns, seed=1).federation)
    others = [read_checked(path, columns).federation.records.score.sum() for _ in range(4)]
    assert len(set(others)) > 1, "without a seed the draw must not repeat itself"


def test_bad_numbers_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("site,score,label\na,0.5,0\na,nan,1\nb,inf,1\nb,0.25,\nb,,1\nb,0.75,1\n")
    with pytest.warns(
        RejectedRecords, match=r"4 of 6 records in .*a\.csv .* first in column 'score' of .*a\.csv, row 2"
    ):
        federation = read(tmp_path / "a.csv", max_missing=0.7)
    assert federation.sizes.tolist() == [1, 1]
    reading = read_checked(tmp_path / "a.csv", Columns(max_missing=0.7))
    assert [(rejected.count, rejected.records) for rejected in reading.rejected] == [(4, 6)]


def test_good_files_do_not_warn(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(write(frame(), tmp_path / "a.csv"))


def test_a_frame_gives_the_same_records_as_its_file(tmp_path: Path) -> None:
    table = frame()
    path = write(table, tmp_path / "a.csv")
    assert same(fedcalib.read(path, site="site"), from_frame(table, site="site", label="label"))
    assert same(from_frame(pa.Table.from_pandas(table)), from_frame(table))
    with pytest.raises(InputError, match="score, logits or probs, found margin"):
        from_frame(table, margin="score")
    with pytest.raises(InputError, match="frame, found int"):
        from_frame(3)


def test_progress_is_told_in_rows(tmp_path: Path) -> None:
    seen: list[int] = []
    read_checked(write(frame(200_000), tmp_path / "a.parquet"), Columns(), watch=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 200_000
    assert len(seen) > 2


def test_importing_io_loads_nothing_heavy() -> None:
    code = "import sys, fedcalib.data; print([m for m in ('pyarrow', 'pandas', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_three_million_rows_stay_within_520_mebibytes(tmp_path: Path, suffix: str) -> None:
    """A file with far more columns than are needed, so that reading it whole would not fit.

    It takes 440 to 480: Arrow gives memory back with a delay, so a machine without other work peaks higher.
    """
    rng = np.random.default_rng(0)
    path = tmp_path / f"large.{suffix}"
    schema = pa.schema(
        [("site", pa.string()), ("score", pa.float32()), ("label", pa.int8())]
        + [(f"feature_{j}", pa.float32()) for j in range(2)]
    )
    writer = pq.ParquetWriter(path, schema) if suffix == "parquet" else pyarrow.csv.CSVWriter(path, schema)
    with writer:
        for _ in range(6):
            n = 500_000
            columns = [np.char.add("s", rng.integers(0, 50, n).astype(str)), rng.random(n, dtype=np.float32)]
            columns += [rng.integers(0, 2, n, dtype=np.int8), *rng.random((2, n), dtype=np.float32)]
            writer.write_table(pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema))
    code = f"import sys, fedcalib; f = fedcalib.read(sys.argv[1]); print(len(f.records), len(f)); {PRINT_PEAK}"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    counts, peak = done.stdout.splitlines()
    assert counts == "3000000 50"
    assert int(peak) < 520 * 1024, f"{peak} KiB"
