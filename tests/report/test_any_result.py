"""Whatever a result holds, its page renders, is valid HTML and shows no count below the minimum."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from functools import cache
from html import unescape
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib.artifacts.performance_parts import GroupedPerformance
from fedcalib.cohort import MIN_RECORDS
from fedcalib.metrics.intervals import Measured
from fedcalib.report.page import render
from fedcalib.workflows import calibrate, evaluate
from fedcalib.workflows.facts import About
from fedcalib.workflows.groups import GroupResult
from tests.report.html import Read, validate

NAMES = st.text(min_size=1, max_size=30)  # in any script, and with whatever else a text can hold
few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def federation(seed: int, records: int, sites: int, classes: int, names: list[str]) -> fc.Federation:
    """Records of sites with these names; some sites have few records, and so have some groups."""
    rng = np.random.default_rng(seed)
    owner = np.minimum(rng.geometric(min(3 / sites, 0.9), records) - 1, sites - 1)
    groups = np.array(["a", "b", "c"])[np.minimum(rng.geometric(0.8, records) - 1, 2)]
    if classes == 2:
        score = rng.beta(0.7, 1.5, records)
        made = fc.Records.of_scores(score, rng.random(records) < score**2, part=groups)
    else:
        probs = rng.dirichlet(np.full(classes, 0.3), records)
        labels = (rng.random((records, 1)) > probs.cumsum(axis=1)).sum(axis=1).clip(0, classes - 1)
        made = fc.Records.of_probs(probs, labels)
    unique = [f"{name}{'' if place < len(names) else place}" for place, name in enumerate(_cycled(names, sites))]
    return fc.Federation.by_site(made, np.array([unique[site] for site in owner], dtype=object))


def _cycled(names: list[str], length: int) -> list[str]:
    return [names[place % len(names)] for place in range(length)]


def small_counts(page: str, read: Read | None = None) -> list[str]:
    """Counts of records below the minimum in the tables, the tips and the embedded document of a page."""
    read, found = read or Read(page), []
    for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
        heads = [re.sub(r"<.*?>", "", head) for head in re.findall(r"<th scope=\"col\".*?</th>", table, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL):
            cells = [re.sub(r"<.*?>", "", one) for one in re.findall(r"<t[dh].*?</t[dh]>", row, re.DOTALL)]
            found += [cell for head, cell in zip(heads, cells, strict=False) if head == "records"]
    found += re.findall(r": ([\d,]+) records(?:,|\")", unescape(" ".join(one["data-tips"] for one in read.pictures)))
    document = json.loads(read.data)
    if document.get("privacy", {}).get("epsilon") is None:  # noisy counts may be small
        found += [str(round(count)) for count in counted(document)]
        found += [str(round(one)) for row in document.get("confusion") or () for one in row if one is not None]
        found += [cell for rows in confusion_tables(page) for row in rows for cell in row[1:]]
    numbers = [one.replace(",", "") for one in found]
    return [one for one in numbers if re.fullmatch(r"\d+", one) and 0 < int(one) < MIN_RECORDS]


def confusion_tables(page: str) -> list[list[list[str]]]:
    """The cells of the confusion tables of a page."""
    tables = re.findall(r"<caption>Confusion table</caption>.*?<tbody>(.*?)</tbody>", page, re.DOTALL)
    return [
        [
            [unescape(re.sub(r"<.*?>", "", cell)) for cell in re.findall(r"<t[dh].*?</t[dh]>", row, re.DOTALL)]
            for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
        ]
        for table in tables
    ]


def counted(data: Any) -> list[float]:
    """Every number of records in a document."""
    if isinstance(data, list):
        return [count for one in data for count in counted(one)]
    if not isinstance(data, dict):
        return []
    own = [data["records"]] if isinstance(data.get("records"), int | float) else []
    return own + [count for one in data.values() for count in counted(one)]


def check(done: Any, about: About) -> str:
    """What holds of the page of any result."""
    contents = done.contents(about)
    page = render(contents)
    validate(page)
    read = Read(page)
    assert json.loads(read.data) == json.loads(contents.data)
    assert not small_counts(page, read)
    shown = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r">\s*(nan|None|inf)\s*<", shown)
    sheet = done.sheet(about)
    validate(sheet.to_html())
    assert sheet.to_markdown().count("\n|") > 60
    return page


def case(
    *, seed: int, records: int, sites: int, classes: int, names: list[str], private: Any, about: About
) -> set[str]:
    """Check the page of one evaluation; return which of the odd things that results can hold it had."""
    data = federation(seed, records, sites, classes, names)
    private = fc.Open() if len(data) < 3 else private
    groups = {"part": ["a", "b", "c", "nobody"]} if classes == 2 else None
    done = evaluate(data, private, groups=groups, simulate=seed)
    page = check(done, about)
    for site in data.names or ():
        if isinstance(private, fc.Open) and len(data) <= 40 and classes == 2 and len(data) > 1:
            assert unescape(page).count(_first(site)) >= 1
    return seen_in(done, len(data), classes, names)


def seen_in(done: Any, sites: int, classes: int, names: list[str]) -> set[str]:
    """The odd things in a result."""
    metrics = done.metrics
    withheld = classes > 2 and metrics.published().confusion is not None and np.isnan(metrics.published().confusion)
    return {
        kind
        for kind, there in {
            "one site": sites == 1,
            "200 sites": sites > 60,
            "an empty group": any(one.shown.get("nobody") is None for one in done.groups),
            "a metric without a value": any(np.isnan(one.value) for one in metrics.estimates().values()),
            "a script that is not Latin": any(ord(letter) > 0x24F for name in names for letter in name),
            "several classes": classes > 2,
            "a withheld cell of confusion": bool(np.any(withheld)),
            "noise": done.privacy.epsilon is not None,
        }.items()
        if there
    }


KINDS = ((2, fc.Open()), (2, fc.SecAgg()), (2, fc.DistributedDP(0.5)), (3, fc.SecAgg()), (6, fc.Open()))
ODD = {"one site", "200 sites", "an empty group", "a metric without a value", "a script that is not Latin"}
ODD |= {"several classes", "a withheld cell of confusion", "noise"}


def test_any_evaluation() -> None:
    seen: set[str] = set()

    @settings(max_examples=14, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
    @given(
        seed=st.integers(0, 2**16),
        records=st.integers(12, 900),
        sites=st.one_of(st.just(1), st.integers(2, 6), st.just(200)),
        kind=st.sampled_from(KINDS),
        names=st.lists(NAMES, min_size=1, max_size=4),
        about=st.builds(About, NAMES, NAMES),
    )
    def evaluated(kind: tuple[int, Any], **drawn: Any) -> None:
        seen.update(case(classes=kind[0], private=kind[1], **drawn))

    evaluated()
    assert seen == ODD, "the strategy draws each of these"


def test_names_and_numbers_that_break_pages() -> None:
    names = ["H\u00e4user <b>&", "\u533b\u9662", "\u0645\u0633\u062a\u0634\u0641\u0649"]
    broken = About("\x00\ud800\ufffe", "<!--")
    case(seed=0, records=900, sites=200, classes=2, names=names, private=fc.Open(), about=broken)
    case(seed=1, records=12, sites=1, classes=2, names=["]]>"], private=fc.Open(), about=About())


def _first(name: str) -> str:
    """The first visible letters of a name, which a label keeps."""
    kept = "".join(one for one in name if one.isprintable() and unicodedata.category(one)[0] not in "CZ")
    return kept[:1]


@few
@given(
    seed=st.integers(0, 2**16),
    records=st.integers(40, 900),
    sites=st.integers(3, 8),
    private=st.sampled_from([fc.Open(), fc.SecAgg(), fc.DistributedDP(1.0)]),
    holdout=st.sampled_from([0.0, 0.4]),
    name=NAMES,
)
def test_any_calibration(*, seed: int, records: int, sites: int, private: Any, holdout: float, name: str) -> None:
    data = federation(seed, records, sites, 2, [name])
    if len(data) < 3:
        return
    done = calibrate(data, fc.FedBin(), private, holdout=holdout, simulate=seed)
    check(done, About(name))


def test_a_thousand_classes() -> None:
    """With two bins by class: the interval of the classwise error takes minutes with fifteen."""
    data = federation(0, 9000, 5, 1000, ["site"])
    artifact = fc.run(fc.methods.ClassMetrics(bins=2), fc.InProcess(data), fc.SecAgg()).artifact
    names = tuple(f"<{chr(0x4E00 + label)}> {label}" for label in range(1000))
    done = replace(evaluate(federation(0, 300, 5, 4, ["site"]), fc.SecAgg()), metrics=artifact, class_names=names)
    assert len(done.metrics.classes) == 1000
    page = check(done, About())
    assert len(page) < 1_500_000
    assert names[999] in unescape(page)
    assert "the 12 with the largest gaps" in page


@pytest.mark.parametrize(("classes", "private"), [(3, fc.SecAgg()), (64, fc.SecAgg()), (3, fc.DistributedDP(3.0))])
def test_confusion_is_that_of_the_result(classes: int, private: Any) -> None:
    done = evaluate(federation(4, 4000, 5, classes, ["north"]), private, simulate=0)
    page = check(done, About())
    data = json.loads(Read(page).data)["confusion"]
    shown = next(one for one in confusion_tables(page))
    texts = [["withheld" if one is None else f"{one:,.0f}" for one in row] for row in data]
    assert [row[1:] for row in shown] == texts
    if isinstance(private, fc.SecAgg):
        truth = done.metrics.confusion
        assert all(one is None or one == truth[k, j] for k, row in enumerate(data) for j, one in enumerate(row))
        assert any(one is None for row in data for one in row) == bool(((truth > 0) & (truth < MIN_RECORDS)).any())


@cache
def measured() -> Any:
    return evaluate(federation(1, 400, 4, 2, ["north"]), fc.Open(), groups={"part": ["a", "b"]})


MISSING = Measured(float("nan"), float("nan"), float("nan"))


@few
@given(
    st.lists(st.sampled_from(["auc", "ece", "slope", "observed_expected", "net_benefit"]), unique=True), st.booleans()
)
@example(["auc", "ece", "slope", "observed_expected", "net_benefit"], True)
def test_metrics_that_are_nan_and_groups_that_are_empty(missing: list[str], empty: bool) -> None:
    done = measured()
    figures = {name: MISSING if name in missing else value for name, value in done.metrics.figures.items()}
    broken = replace(done, metrics=replace(done.metrics, figures=figures))
    if empty:
        nobody = GroupResult(GroupedPerformance("part", {}, ("a", "b")), None)
        broken = replace(broken, groups=(nobody,))
    check(broken, About())


def test_a_small_cell_would_be_found() -> None:
    """The search for small counts finds one where there is one."""
    done = evaluate(federation(2, 500, 3, 2, ["north"]), fc.Open(), min_count=1)
    assert small_counts(render(done.contents()))


@pytest.mark.parametrize("private", [fc.Open(), fc.DistributedDP(1.0)], ids=["exact", "noisy"])
def test_the_explorer_states_what_the_evaluation_does(private: Any) -> None:
    done = evaluate(federation(3, 900, 4, 2, ["north"]), private, simulate=1)
    shown, table = done.metrics.published(done.min_count or 1), done.document()["thresholds"]
    assert 0.5 in table["threshold"]
    for place, at in enumerate(table["threshold"]):
        for name, column in table["model"].items():
            expected = shown.at(at)[name]
            if np.isnan(expected.value):
                assert column["value"][place] is None
            else:
                found = [column[end][place] for end in ("value", "low", "high")]
                assert found == pytest.approx([expected.value, expected.low, expected.high], abs=1e-12)
    middle = table["threshold"].index(0.5)
    stated = done.to_json()["metrics"]["sensitivity"]
    assert stated is None or table["model"]["sensitivity"]["value"][middle] == stated["value"]
