"""Every kind of bad input gets an error that names the file, and the column and row where there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedcalib.data import Columns, open_table, read, read_checked
from fedcalib.errors import InputError

GOOD = "site,score,label\na,0.5,0\nb,0.25,1\n"


def text(name: str, content: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return make


def truncated_parquet(folder: Path) -> Path:
    whole = folder / "cut.parquet"
    pd.DataFrame({"score": np.linspace(0, 1, 1000), "label": [0, 1] * 500}).to_parquet(whole)
    whole.write_bytes(whole.read_bytes()[:-200])
    return whole


def corrupt_parquet(folder: Path) -> Path:
    whole = folder / "rot.parquet"
    pd.DataFrame({"score": np.random.default_rng(0).random(1000), "label": [0, 1] * 500}).to_parquet(whole)
    content = bytearray(whole.read_bytes())
    content[4:2000] = bytes(1996)
    whole.write_bytes(bytes(content))
    return whole


def pickled_npz(folder: Path) -> Path:
    np.savez(folder / "objects.npz", score=np.array([{}, {}], dtype=object), label=[0, 1])
    return folder / "objects.npz"


def uneven_npz(folder: Path) -> Path:
    np.savez(folder / "uneven.npz", score=[0.5, 0.5, 0.5], label=[0, 1])
    return folder / "uneven.npz"


def no_zip(folder: Path) -> Path:
    (folder / "a.npz").write_text("no zip")
    return folder / "a.npz"


def typed(folder: Path) -> Path:
    pd.DataFrame({"score": pd.to_datetime(["2020-01-01", "2020-01-02"]), "label": [0, 1]}).to_parquet(
        folder / "d.parquet"
    )
    return folder / "d.parquet"


CASES = {
    "missing label": (text("a.csv", "score,y\n0.5,1\n"), "column 'label' in .*a.csv, found the columns 'score', 'y'"),
    "missing scores": (text("a.csv", "label,y\n1,1\n"), "'score'.*'logit_0'.*'p_0'.* in .*a.csv.*'label', 'y'"),
    "both kinds": (text("a.csv", "p_0,p_1,score,label\n"), "one kind of score in .*a.csv, found 'score' and 'p_\\*'"),
    "gap in classes": (text("a.csv", "p_0,p_2,label\n"), "'p_\\*' numbered .* in .*a.csv, found .*'p_0', 'p_2'"),
    "one class column": (text("a.csv", "p_0,label\n1,0\n"), "'p_\\*' numbered .*, at least two.*'p_0'"),
    "twice the column": (text("a.csv", "score,score,label\n"), "one column 'score' in .*a.csv, found 2"),
    "label too large": (
        text("a.csv", GOOD + "a,0.5,2\n"),
        "class from 0 to 1 in column 'label' of .*a.csv, row 3, found 2",
    ),
    "label negative": (text("a.csv", "score,label\n0.5,-1\n"), "column 'label' of .*a.csv, row 1, found -1"),
    "label fractional": (text("a.csv", "score,label\n0.5,0.5\n"), "column 'label' of .*a.csv, row 1, found 0.5"),
    "label is a word": (text("a.csv", GOOD + "a,0.5,cat\n"), "number in column 'label' of .*a.csv, row 3, found 'cat'"),
    "score is a word": (text("a.csv", GOOD + "a,high,1\n"), "number in column 'score' of .*a.csv, row 3, found 'high'"),
    "score is a date": (typed, "numbers in column 'score' of .*d.parquet, found timestamp"),
    "score above one": (
        text("a.csv", GOOD + "a,1.5,1\n"),
        "between 0 and 1 in column 'score' of .*a.csv, row 3, found 1.5",
    ),
    "score is a logit": (text("a.csv", GOOD + "a,-3,1\n"), "row 3, found -3; this looks like logits; name the column"),
    "sum": (text("a.csv", "p_0,p_1,label\n0.5,0.5,0\n0.5,0.6,1\n"), "'p_0' to 'p_1' of .*a.csv, row 2, found 1.1"),
    "empty file": (text("a.csv", ""), "records in .*a.csv, found an empty file"),
    "header only": (text("a.csv", "score,label\n"), "records in .*a.csv, found a header and no rows"),
    "one class only": (
        text("a.csv", "score,label\n0.5,1\n0.2,1\n"),
        "two classes in column 'label' of .*a.csv, found class 1",
    ),
    "all bad": (
        text("a.csv", "score,label\nnan,1\n0.5,\n"),
        "all 2 records .*, first in column 'score' of .*a.csv, row 1",
    ),
    "no site": (
        text("a.csv", "site,score,label\n,0.5,1\n ,0.5,0\na,0.5,1\n"),
        "2 of 3 records in .*a.csv were left out .* first in column 'site' of .*a.csv, row 1.* max_missing",
    ),
    "ragged row": (text("a.csv", GOOD + "a,0.5\n"), "3 cells per row in .*a.csv.* found 2 in row 3"),
    "truncated": (truncated_parquet, "whole, valid Parquet file in .*cut.parquet"),
    "corrupt": (corrupt_parquet, "whole, valid Parquet file in .*rot.parquet"),
    "directory": (lambda folder: folder, "found the directory"),
    "absent": (lambda folder: folder / "absent.csv", "read .*absent.csv, found: No such file"),
    "pattern": (lambda folder: folder / "*.csv", "match .*\\*.csv, found none"),
    "suffix": (text("a.xml", "x"), "ends in .*csv.*parquet.*npz.*a.xml"),
    "pickles": (pickled_npz, "valid NPZ file in .*objects.npz.*allow_pickle"),
    "uneven": (uneven_npz, "one length in .*uneven.npz"),
    "no zip": (no_zip, "valid NPZ file in .*a.npz"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_message_names_the_thing(tmp_path: Path, case: str) -> None:
    make, message = CASES[case]
    path = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=f"(?s){message}"):
        read(path, one_site=True)
    assert sorted(tmp_path.iterdir()) == before


def test_rows_are_counted_through_batches(tmp_path: Path) -> None:
    n = 200_000
    table = pd.DataFrame({"score": np.full(n, 0.5), "label": np.arange(n) % 2})
    table.loc[150_000, "label"] = 7
    table.to_parquet(tmp_path / "a.parquet")
    table.to_csv(tmp_path / "a.csv", index=False)
    for name in ("a.parquet", "a.csv"):
        with pytest.raises(InputError, match=f"{name}, row 150001, found 7"):
            read(tmp_path / name, one_site=True)


def test_files_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    paths = {
        name: text(f"{name}.csv", content)(tmp_path)
        for name, content in {
            "binary": "score,label\n0.5,0\n0.5,1\n",
            "three": "p_0,p_1,p_2,label\n0.5,0.25,0.25,0\n",
            "logits": "logit_0,logit_1,label\n1,2,1\n",
            "sited": GOOD,
        }.items()
    }
    with pytest.raises(InputError, match=r"of 2 classes in .*binary.csv and probabilities of 3 classes in .*three.csv"):
        read([paths["binary"], paths["three"]])
    with pytest.raises(InputError, match=r"binary.csv and logits of 2 classes in .*logits.csv"):
        read([paths["binary"], paths["logits"]])
    with pytest.raises(InputError, match=r"site column in all files or in none"):
        read([paths["binary"], paths["sited"]])
    (tmp_path / "again").mkdir()
    twin = text("again/binary.csv", "score,label\n0.5,0\n0.5,1\n")(tmp_path)
    with pytest.raises(InputError, match="found 'binary' twice"):
        read([paths["binary"], twin])
    with pytest.raises(InputError, match=r"column 'hospital' in .*binary.csv"):
        read(paths["binary"], site="hospital")
    with pytest.raises(InputError, match=r"column 'patient' in .*binary.csv"):
        read(paths["binary"], unit="patient")


def test_a_unit_that_is_missing_is_refused(tmp_path: Path) -> None:
    path = text("a.csv", "score,label,patient\n0.5,0,7\n0.5,1,\n")(tmp_path)
    with pytest.raises(InputError, match=r"unit in column 'patient' of .*a.csv, row 2"):
        read(path, unit="patient", one_site=True)


def test_stating_two_kinds_of_scores_is_refused() -> None:
    with pytest.raises(InputError, match="found score and logits"):
        Columns(score="a", logits="b_*")
    with pytest.raises(InputError, match="at least one file"):
        read_checked([], Columns())


@pytest.mark.skipif(os.name != "posix", reason="file modes are a POSIX matter")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    """Root may read everything, so the reading is done by somebody else where the tests run as root."""
    path = text("secret.csv", GOOD)(tmp_path)
    path.chmod(0)
    if os.geteuid() != 0:
        with pytest.raises(InputError, match=r"read .*secret.csv, found: Permission denied"):
            open_table(path)
        return
    code = "import os, sys; from fedcalib.data import read; os.setuid(65534); read(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert f"Expected to read {path}, found: Permission denied" in done.stderr
