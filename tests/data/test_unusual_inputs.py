"""Files as people have them: each is read as it was meant, or refused in one message, and nothing is written.

`READ` holds inputs that are read, with what has to come out of them; `REFUSED` holds commands that end with exit code 2
and one line on stderr, which names the file and, where there is one, the column and the row.
"""

# ruff: noqa: E501 - one line per input
from __future__ import annotations

import gzip
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedcalib as fc
from fedcalib.cli.app import run
from fedcalib.data import Columns, read_checked
from fedcalib.errors import InputError

ROWS = "north,0.9,1\nnorth,0.2,0\nsouth,0.4,0\nsouth,0.6,1\n"
PLAIN = f"site,score,label\n{ROWS}"
EUROPEAN = PLAIN.replace(",", ";").replace(".", ",")
WORDS = PLAIN.replace(",1\n", ",yes\n").replace(",0\n", ",no\n")
ONE_TWO = PLAIN.replace(",1\n", ",2\n").replace(",0\n", ",1\n")
PERCENT = "site,score,label\nnorth,90,1\nnorth,20,0\nsouth,40,0\nsouth,60,1\n"
NAMED = "site,prob_setosa,prob_virginica,prob_rose,label\nn,0.7,0.2,0.1,setosa\ns,0.3,0.5,0.2,virginica\n"
LOG_ODDS = "site,risk,label\nnorth,2.5,1\nsouth,-3,0\n"
NOISE = np.random.default_rng(0).bytes(5000)

SITES, LABELS, SCORES = ("north", "south"), [1, 0, 0, 1], [0.9, 0.2, 0.4, 0.6]
USUAL = (SITES, LABELS, SCORES)


def workbook(rows: list[list[Any]]) -> bytes:
    """A workbook of one sheet, by hand: nothing here writes one."""
    import io

    def cell(value: Any) -> str:
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
        return f"<c><v>{value}</v></c>"

    sheet = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>'
        f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{kind}.worksheet+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>'
        '<sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" '
        f'Type="{office}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{sheet}</sheetData></worksheet>',
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


SHEET = [["site", "score", "label"], ["north", 0.9, 1], ["north", 0.2, 0], ["south", 0.4, 0], ["south", 0.6, 1]]

# name: (file, content, options of read, what comes out, what is said about it)
READ: dict[str, tuple[str, str | bytes, dict[str, Any], tuple[Any, ...], str]] = {
    "semicolons and decimal commas": ("a.csv", EUROPEAN, {}, USUAL, "as semicolon-separated with decimal comma"),
    "semicolons": ("a.csv", PLAIN.replace(",", ";"), {}, USUAL, "as semicolon-separated."),
    "tabs in a csv": ("a.csv", PLAIN.replace(",", "\t"), {}, USUAL, "as tab-separated"),
    "commas in a tsv": ("a.tsv", PLAIN, {}, USUAL, "as comma-separated"),
    "bars in a txt": ("a.txt", PLAIN.replace(",", "|"), {}, USUAL, "as bar-separated"),
    "a line for Excel": ("a.csv", "sep=;\n" + EUROPEAN, {}, USUAL, "as semicolon-separated with decimal comma"),
    "quoted decimal commas": ("a.csv", 'site,score,label\nn,"0,9",1\ns,"0,2",0\n', {}, (("n", "s"), [1, 0], [0.9, 0.2]), "with decimal comma"),
    "a byte order mark": ("a.csv", EUROPEAN.encode("utf-8-sig"), {}, USUAL, "semicolon"),
    "UTF-16": ("a.csv", EUROPEAN.encode("utf-16"), {}, USUAL, "in the encoding UTF-16"),
    "Windows-1252": ("a.csv", PLAIN.replace("south", "Zürich").encode("cp1252"), {}, (("Zürich", "north"), [0, 1, 1, 0], [0.4, 0.6, 0.9, 0.2]), "in the encoding Windows-1252"),
    "Latin-1 far down": ("a.csv", (PLAIN + "north,0.5,0\n" * 20_000 + "Genève,0.5,1\n").encode("latin-1"), {}, (("Genève", "north", "south"), None, None), "Windows-1252"),
    "Windows line ends": ("a.csv", PLAIN.replace("\n", "\r\n"), {}, USUAL, ""),
    "blank lines": ("a.csv", f"\n\n{PLAIN}\n\n", {}, USUAL, ""),
    "padded names and cells": ("a.csv", PLAIN.replace(",", " , "), {}, USUAL, ""),
    "commas in quoted names": ("a.csv", PLAIN.replace("north", '"north, old"'), {}, (("north, old", "south"), LABELS, SCORES), ""),
    "line ends in quoted cells": ("a.csv", 'site,note,score,label\nn,"a\nb",0.9,1\ns,"c",0.2,0\n', {}, (("n", "s"), [1, 0], [0.9, 0.2]), ""),
    "gzip without a name": ("a.csv", gzip.compress(PLAIN.encode()), {}, USUAL, ""),
    "a name without gzip": ("a.csv.gz", PLAIN, {}, USUAL, ""),
    "a workbook": ("a.xlsx", workbook(SHEET), {}, USUAL, ""),
    "yes and no": ("a.csv", WORDS, {"positive": "yes"}, USUAL, ""),
    "no and yes": ("a.csv", WORDS, {"classes": ["no", "yes"]}, USUAL, ""),
    "1 and 2": ("a.csv", ONE_TWO, {"positive": 2}, USUAL, ""),
    "classes 1 and 2": ("a.csv", ONE_TWO, {"classes": "1,2"}, USUAL, ""),
    "-1 and 1": ("a.csv", PLAIN.replace(",0\n", ",-1\n"), {"positive": "1"}, USUAL, ""),
    "1.0 and 0.0": ("a.csv", PLAIN.replace(",0\n", ",0.0\n").replace(",1\n", ",1.0\n"), {"positive": "1"}, USUAL, ""),
    "TRUE and FALSE": ("a.csv", PLAIN.replace(",0\n", ",FALSE\n").replace(",1\n", ",TRUE\n"), {}, USUAL, ""),
    "a truth that is stated": ("a.csv", PLAIN.replace(",0\n", ",FALSE\n").replace(",1\n", ",TRUE\n"), {"positive": True}, USUAL, ""),
    "numbers of named classes": ("a.csv", PLAIN, {"classes": ["alive", "dead"]}, USUAL, ""),
    "columns by class": ("a.csv", NAMED, {}, (("n", "s"), [1, 2], None), ""),
    "columns by class, ordered": ("a.csv", NAMED, {"probs": "prob_*", "classes": "virginica,setosa,rose"}, (("n", "s"), [1, 0], None), ""),
    "a class called none": ("a.csv", "site,prob_mild,prob_none,prob_high,label\na,0.5,0.3,0.2,none\na,0.5,0.3,0.2,mild\n", {}, (("a",), [2, 1], None), ""),
    "percentages": ("a.csv", PERCENT, {"percent": True}, USUAL, ""),
    "percentages with a sign": ("a.csv", PERCENT.replace("90", "90%").replace("20", "20 %"), {"percent": True}, USUAL, ""),
    "log-odds": ("a.csv", LOG_ODDS, {"logits": "risk"}, (SITES, [1, 0], [0.9241418, 0.0474259]), ""),
    "probabilities as percentages": ("a.csv", PLAIN, {"percent": True}, (SITES, LABELS, [0.009, 0.002, 0.004, 0.006]), "No percentage in 'score' is above 1.*--percent"),
    "probabilities as log-odds": ("a.csv", PLAIN, {"logits": "score"}, (SITES, LABELS, None), "All logits in 'score' are between 0 and 1.*--score"),
    "probabilities as logits": ("a.csv", "site,z_0,z_1,label\na,0.3,0.7,1\nb,0.9,0.1,0\n", {"logits": "z_*"}, (("a", "b"), [1, 0], None), "All logits in 'z_0', 'z_1' are between 0 and 1.*--probs"),
    "one site": ("a.csv", "score,label\n0.9,1\n0.2,0\n", {"one_site": True}, (("a",), [1, 0], [0.9, 0.2]), ""),
    "a missing site": ("a.csv", PLAIN + ",0.5,1\n", {}, USUAL, "1 of 5 records .* first in column 'site' of .*a.csv, row 5"),
    "missing cells": ("a.csv", PLAIN + "north,NA,1\nsouth,0.5,n/a\n", {}, USUAL, "2 of 6 records .* column 'score' of .*a.csv, row 5"),
    "people with several records": ("a.csv", "patient_id,site,score,label\n1,north,0.9,1\n1,north,0.2,0\n2,south,0.4,0\n3,south,0.6,1\n", {}, USUAL, "4 records hold 3 different values of 'patient_id'.*--unit patient_id"),
    "people counted once": ("a.csv", "who,site,score,label\n1,north,0.9,1\n2,north,0.2,0\n3,south,0.4,0\n3,south,0.4,0\n4,south,0.6,1\n", {"unit": "who"}, USUAL, "4 of 5 records were kept: one per 'who' and site"),
}  # fmt: skip

# name: (file, content, flags, what is said)
REFUSED: dict[str, tuple[str, str | bytes, tuple[str, ...], str]] = {
    "random bytes": ("a.csv", NOISE, (), "text in .*a.csv, found binary data"),
    "random bytes without zeros": ("a.csv", NOISE.replace(b"\0", b""), (), "text in .*a.csv, found binary data"),
    "Parquet called csv": ("a.csv", b"PAR1" + bytes(100), (), "found a Parquet file"),
    "a workbook called csv": ("a.csv", workbook(SHEET), (), "found a ZIP archive or an Excel workbook"),
    "a damaged workbook": ("a.xlsx", b"PK\x03\x04 and no more", (), "a.xlsx, found"),
    "random Parquet": ("a.parquet", NOISE, (), "valid Parquet file in .*a.parquet"),
    "random NPZ": ("a.npz", NOISE, (), "valid NPZ file in .*a.npz"),
    "cut gzip": ("a.csv.gz", gzip.compress(PLAIN.encode())[:-12], (), "valid CSV file in .*a.csv.gz"),
    "blank lines only": ("a.csv", "\n\n", (), "valid CSV file in .*a.csv"),
    "JSON": ("a.json", "[]", (), "ends in .csv.*found a.json"),
    "no header": ("a.csv", ROWS, (), "a.csv.* the first line seems to be data: add a header line"),
    "no site": ("a.csv", "score,label\n0.9,1\n0.2,0\n", (), "site column in a.csv.*--site.*--one-site"),
    "ragged after a line for Excel": ("a.csv", f"sep=;\n{EUROPEAN}x;1\n", (), "3 cells per row in a.csv.*found 2 in row 5"),
    "words as labels": ("a.csv", WORDS, (), "class number in column 'label' of a.csv, row 1, found 'yes'.*--positive.*--classes"),
    "labels 1 and 2": ("a.csv", ONE_TWO, (), "class from 0 to 1 in column 'label' of a.csv, row 1, found 2.*--positive"),
    "a third label": ("a.csv", WORDS + "n,0.5,maybe\n", ("--positive", "yes"), "one label besides 'yes' in column 'label' of a.csv, found 'no', 'maybe'"),
    "no such label": ("a.csv", PLAIN, ("--positive", "3"), "besides '3' in column 'label' of a.csv, found '1', '0'"),
    "a label that is no class": ("a.csv", NAMED.replace(",virginica\n", ",tulip\n"), (), "classes 'rose', 'setosa', 'virginica' in column 'label' of a.csv, row 2, found 'tulip'"),
    "too few classes": ("a.csv", NAMED, ("--classes", "setosa,rose"), "exactly the classes setosa, rose for the star in a.csv"),
    "classes twice": ("a.csv", PLAIN, ("--classes", "a,a"), "two different classes, found a, a"),
    "positive and classes": ("a.csv", PLAIN, ("--classes", "a,b", "--positive", "a"), "positive and classes"),
    "percentages": ("a.csv", PERCENT, (), "column 'score' of a.csv, row 1, found 90; this looks like percentages.*--percent"),
    "percent signs": ("a.csv", PERCENT.replace("90", "90%"), (), "column 'score' of a.csv, row 1, found '90%'.*--percent"),
    "log-odds as a score": ("a.csv", LOG_ODDS, ("--score", "risk"), "column 'risk' of a.csv, row 1, found 2.5; this looks like logits.*--logits"),
    "mixed decimal signs": ("a.csv", EUROPEAN.replace("0,9", "0.9"), (), "number in column 'score' of a.csv, row 2, found '0,2'"),
    "digits of another script": ("a.csv", PLAIN + "north,\u0660.\u0665,1\n", (), "number in column 'score' of a.csv, row 5"),
    "mostly missing": ("a.csv", PLAIN + "north,,1\n" * 5, (), "at most 50% .* 5 of 9 records in a.csv .* first in column 'score' of a.csv, row 5.*--max-missing"),
    "more missing than allowed": ("a.csv", PLAIN + "north,,1\n", ("--max-missing", "0.1"), "at most 10% .* 1 of 5 records in a.csv"),
    "an impossible share": ("a.csv", PLAIN, ("--max-missing", "2"), "--max-missing between 0 and 1, found 2"),
    "a missing unit": ("a.csv", "who," + PLAIN.replace("\n", "\n,").rstrip(","), ("--unit", "who"), "unit in column 'who' of a.csv, row 1"),
    "a site off the list": ("a.csv", PLAIN, ("--sites", "north"), "site of the list in column 'site' of a.csv, row 3, found 'south'"),
}  # fmt: skip


def test_there_are_at_least_sixty() -> None:
    assert len(READ) + len(REFUSED) >= 60


def raw(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


@pytest.mark.parametrize("case", READ)
def test_it_is_read_as_it_was_meant(case: str, tmp_path: Path) -> None:
    name, content, options, (sites, labels, scores), said = READ[case]
    if name.endswith("xlsx"):
        pytest.importorskip("python_calamine")
    path = tmp_path / name
    path.write_bytes(raw(content))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        federation = fc.read(path, **options)
    assert federation.names == sites
    assert labels is None or federation.records.labels.tolist() == labels
    assert scores is None or federation.records.score.tolist() == pytest.approx(scores)
    texts = [str(one.message) for one in heard]
    assert len(texts) == bool(said)
    assert re.search(said, " ".join(texts)), texts


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_in_one_message(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Standard error is captured as the process writes it: libraries write there too."""
    name, content, flags, said = REFUSED[case]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDCALIB_STATE", str(tmp_path / "state"))
    Path(name).write_bytes(raw(content))
    words = ("calibrate", name, *flags, "--method", "fed-bin", "--privacy", "open", "--out", "out")
    assert run(words) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert re.search(said, err), err
    assert err.startswith("Error: ") and err.count("\n") == 1, err
    assert "Traceback" not in err
    assert not Path("out").exists()
    assert not list(tmp_path.rglob("*.jsonl")), "a query was sent"


TABLE = {"site": ["n", "n", "s", "s"], "score": [0.9, 0.2, 0.4, 0.6], "label": [1, 0, 0, 1]}


def polars_frame() -> Any:
    return pytest.importorskip("polars").DataFrame(TABLE)


def duckdb_relation() -> Any:
    frame = pd.DataFrame(TABLE)
    return pytest.importorskip("duckdb").from_df(frame)


def arrow(kind: str) -> Any:
    import pyarrow as pa

    table = pa.table(TABLE)
    return {"table": table, "batch": table.to_batches()[0], "reader": table.to_reader()}[kind]


def tensors(dtype: str) -> Any:
    torch = pytest.importorskip("torch")
    score = torch.tensor(TABLE["score"], dtype=getattr(torch, dtype), requires_grad=True)
    return {**TABLE, "score": score, "label": torch.tensor(TABLE["label"])}


def without_site(part: slice) -> Any:
    return pd.DataFrame(TABLE)[part].drop(columns="site")


FRAMES: dict[str, Callable[[], Any]] = {
    "dict": lambda: TABLE,
    "arrays": lambda: {name: np.array(column) for name, column in TABLE.items()},
    "half precision": lambda: {**TABLE, "score": np.array(TABLE["score"], np.float16)},
    "torch": lambda: tensors("float32"),
    "bfloat16": lambda: tensors("bfloat16"),
    "pandas": lambda: pd.DataFrame(TABLE),
    "nullable": lambda: pd.DataFrame(TABLE).astype({"score": "Float64", "label": "Int64"}),
    "booleans": lambda: pd.DataFrame(TABLE).astype({"label": bool}),
    "mixed types": lambda: pd.DataFrame(TABLE).assign(label=pd.Series([1, "0", 0, "1"], dtype=object)),
    "site in the index": lambda: pd.DataFrame(TABLE).set_index("site"),
    "Arrow table": lambda: arrow("table"),
    "Arrow batch": lambda: arrow("batch"),
    "Arrow reader": lambda: arrow("reader"),
    "Polars": polars_frame,
    "lazy Polars": lambda: polars_frame().lazy(),
    "Polars series": lambda: {name: polars_frame()[name] for name in TABLE},
    "DuckDB": duckdb_relation,
    "list of frames": lambda: [pd.DataFrame(TABLE)[:2], pd.DataFrame(TABLE)[2:]],
    "frames by site": lambda: {"n": without_site(slice(2)), "s": without_site(slice(2, 4))},
    "rows": lambda: pd.DataFrame(TABLE).to_dict("records"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_every_kind_are_read(kind: str) -> None:
    federation = fc.read(FRAMES[kind]())
    assert federation.names == ("n", "s")
    assert federation.records.labels.tolist() == TABLE["label"]
    assert federation.records.score.tolist() == pytest.approx(TABLE["score"], rel=4e-3)


@pytest.mark.parametrize("kind", ["dict", "torch", "Polars", "Arrow reader", "list of frames", "frames by site"])
def test_workflows_take_frames_of_every_kind(kind: str) -> None:
    done = fc.evaluate(FRAMES[kind](), privacy=fc.Open())
    assert done.to_json()["records"] == 4


def test_categories_are_words() -> None:
    frame = pd.DataFrame(TABLE).assign(label=pd.Categorical(["ill", "well", "well", "ill"]))
    assert fc.read(frame, positive="ill").records.labels.tolist() == TABLE["label"]
    polars = pytest.importorskip("polars")
    column = polars.Series("label", ["ill", "well", "well", "ill"], dtype=polars.Categorical)
    assert fc.read(polars.DataFrame(TABLE).with_columns(column), positive="ill").records.labels.tolist() == [1, 0, 0, 1]


def test_a_matrix_of_tensors_is_one_column_per_class() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.randn(4, 3, requires_grad=True, generator=torch.Generator().manual_seed(0)).bfloat16()
    federation = fc.read({"site": TABLE["site"], "label": [0, 1, 2, 0], "logits": logits})
    assert federation.records.given == pytest.approx(logits.detach().float().numpy())
    assert fc.Records.of_logits(logits, torch.tensor([0, 1, 2, 0])).given == pytest.approx(federation.records.given)


def test_one_column_of_log_odds_is_two_classes() -> None:
    odds = np.array([2.5, -3.0, 0.0])
    records = fc.Records.of_logits(odds, [1, 0, 1])
    assert records.score.tolist() == pytest.approx((1 / (1 + np.exp(-odds))).tolist())
    halved = fc.artifacts.Temperature(2.0).from_logits(odds)
    assert halved == pytest.approx(1 / (1 + np.exp(-odds / 2)))


SCORES_OF: dict[str, Callable[[], Any]] = {
    "list": lambda: TABLE["score"],
    "Series": lambda: pd.Series(TABLE["score"]),
    "Polars": lambda: polars_frame()["score"],
    "Arrow": lambda: arrow("table")["score"],
    "torch": lambda: tensors("float32")["score"],
}


@pytest.mark.parametrize("kind", SCORES_OF)
def test_a_calibrator_takes_columns_of_every_kind(kind: str) -> None:
    calibrator = fc.artifacts.Platt(slope=0.8, intercept=-0.2)
    found = calibrator(SCORES_OF[kind]())
    assert found.shape == (4,)
    assert found == pytest.approx(calibrator(np.array(TABLE["score"])), rel=1e-6)


OTHERS: dict[str, tuple[Any, str]] = {
    "an array": (np.zeros((4, 2)), r"columns with names, found an array of shape \(4, 2\)"),
    "a column": (pd.Series([0.5, 0.2]), r"columns with names, found an array of shape \(2,\)"),
    "a number": (3, "found int"),
    "nothing": (None, "found NoneType"),
    "no files": ([], "at least one file or frame"),
    "numbers": ([1, 2], "files or frames in the list, found int"),
    "uneven": (
        {"site": ["a"], "score": [0.1, 0.2]},
        "columns of one length in the frame, found .*'site': 1, 'score': 2",
    ),
    "one value": ({"site": "a", "score": [0.1], "label": [1]}, "one value per record in column 'site'"),
    "a name twice": (pd.DataFrame([[0.1, 0.2]], columns=["score", "score"]), "a column name twice: score, score"),
    "an empty frame": (pd.DataFrame(TABLE)[:0], "records in the frame, found a header and no rows"),
    "words": ({**TABLE, "label": ["y", "n", "n", "y"]}, "column 'label' of the frame, row 1, found 'y'.*positive"),
    "the second of two": ([TABLE, {**TABLE, "score": [2, 0, 0, 0]}], "column 'score' of frame 2, row 1, found 2"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_anything_else_is_refused_without_showing_records(case: str) -> None:
    source, said = OTHERS[case]
    with pytest.raises(InputError, match=said) as caught:
        fc.read(source)
    assert len(str(caught.value)) < 400


def test_an_epsilon_is_not_stopped_by_what_is_missing(tmp_path: Path) -> None:
    """How many records are missing is a fact about the records, and so is who has several."""
    path = tmp_path / "a.csv"
    path.write_text("patient,site,score,label\n1,a,0.5,1\n1,a,,0\n2,b,,1\n")
    with pytest.raises(InputError, match="max_missing"):
        read_checked(path, Columns())
    reading = read_checked(path, Columns(), private=True)
    assert len(reading.federation.records) == 1
    assert reading.notes == ("There is a column 'patient'. If a person may have several records, state unit='patient' (--unit patient).",)  # fmt: skip
    kept = read_checked(path, Columns(unit="patient"), private=True)
    assert kept.notes == ("One record per 'patient' and site was kept, drawn at random.",)


def test_files_with_columns_in_another_order_agree(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("label,prob_b,prob_a\na,0.2,0.8\nb,0.6,0.4\n")
    (tmp_path / "two.csv").write_text("prob_a,prob_b,label\n0.8,0.2,a\n0.4,0.6,b\n")
    reading = read_checked([tmp_path / "one.csv", tmp_path / "two.csv"], Columns(probs="prob_*"))
    assert reading.class_names == ("a", "b")
    first, second = reading.federation.clients()
    assert np.array_equal(first.given, second.given) and np.array_equal(first.labels, second.labels)
