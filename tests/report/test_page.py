"""The page: whole with any part missing, safe, self-contained, silent about private counts."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError

from fedcalib.errors import InputError
from fedcalib.metrics.intervals import Measured
from fedcalib.report import curve_plots, row_plots
from fedcalib.report.notebook import in_notebook
from fedcalib.report.page import Page, Section, render, save
from fedcalib.report.values import MetricRow, PageTable, Public, Said, SiteRow, TimePoint
from tests.report.examples import NASTY, OPTIONAL, curve, diagram, metrics, picture, sites, whole_page
from tests.report.html import Read, validate

WHOLE = whole_page()
BANNER = "simulation: not private"
PRIVATE = "not shown (private)"


@pytest.fixture(scope="module")
def whole() -> str:
    return render(WHOLE)


def check(html: str) -> Read:
    """What holds of every page."""
    read = Read(html)
    assert not re.search(r"\b(nan|none|inf|undefined)\b", read.text, re.IGNORECASE)
    validate(html)
    assert all(len(given["aria-label"]) > 20 for given in read.pictures)
    assert not {"img", "link", "iframe", "object"} & {name for name, _ in read.elements}
    assert not any("src" in given for _, given in read.elements)
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)|url\(|@import|srcset", html)
    assert all(given["scope"] in ("row", "col") for given in read.all("th"))
    assert not any("style" in given for _, given in read.elements)  # the policy would ignore it
    assert all(len(set(rows)) == 1 for rows in read.tables)  # every row spans every column
    return read


def test_every_part_is_there(whole: str) -> None:
    read = check(whole)
    for words in (
        "Delays",
        "It got better.",
        "Spent epsilon = 1 on one record.",
        "312,044",
        "0.0812",
        "0.0770 to 0.0851",
        "Two sites were too small.",
        "too few to show",
        "fedcalib",
        "0.1.0",
    ):
        assert words in read.text
    assert [given["aria-label"].split(".")[0] for given in read.pictures] == [
        "Reliability in bins",
        "Distribution of scores",
        "Site by site",
        "Over time",
    ]
    assert BANNER not in read.text


@pytest.mark.parametrize("part", OPTIONAL)
def test_any_part_may_come_alone(part: str) -> None:
    check(render(replace(Page("Alone"), **{part: getattr(WHOLE, part)})))


@pytest.mark.parametrize("part", ["metrics", "before", "after", "privacy", "provenance"])
def test_any_part_may_be_missing(part: str) -> None:
    light = replace(WHOLE, sites=(), figures=())
    check(render(replace(light, **{part: getattr(Page("Missing"), part)})))


def test_a_title_is_enough() -> None:
    read = check(render(Page("Nothing but a title")))
    assert not read.all("section")
    assert not read.pictures


def test_a_page_that_compares_nothing_has_one_column() -> None:
    only_before = tuple(MetricRow(row.name, row.before) for row in metrics())
    only_after = tuple(MetricRow(row.name, None, row.after) for row in metrics())
    for rows in (only_before, only_after):
        read = check(render(Page("Evaluation", metrics=rows)))
        assert read.tables[0] == [2] * 5
        assert "verdict" not in read.text
    sites_alone = check(render(Page("Evaluation", sites=(SiteRow("a", Measured(0.1)), SiteRow("b", too_few=True)))))
    assert sites_alone.tables == [[3] * 3]


def test_words_from_outside_stay_words() -> None:
    nasty = Page(
        NASTY,
        summary=(NASTY,),
        privacy=(NASTY,),
        metrics=(MetricRow(NASTY, Measured(1), Measured(2), note=NASTY),),
        before=diagram(NASTY, ece_text=NASTY),
        sites=sites(),
        site_metric=NASTY,
        asked=NASTY,
        gains=(NASTY,),
        next_steps=(NASTY,),
        meaning=(NASTY,),
        facts={NASTY: NASTY},
        reliability=curve_plots.smooth_reliability([curve(NASTY, text=NASTY)], NASTY),
        sections=(
            Section(NASTY, (picture(),), (PageTable(NASTY, (NASTY, NASTY), ((NASTY, (Said(NASTY),)),)),), (NASTY,)),
        ),
        figures=(row_plots.timeline([TimePoint(NASTY, Measured(1))], NASTY, title=NASTY),),
        data=json.dumps({NASTY: NASTY}),
        warnings=(NASTY,),
        provenance={NASTY: NASTY},
    )
    read = check(render(nasty))
    assert not any(name.startswith("on") for _, given in read.elements for name in given)
    assert read.text.count("<script>alert('1')</script>") >= 24  # as text
    assert [given.get("type") for given in read.all("script")] == ["application/json", None]
    assert json.loads(read.data) == {NASTY: NASTY}
    notebook = Read(in_notebook(nasty))
    assert not notebook.all("script")
    assert not any(name.startswith("on") for _, given in notebook.elements for name in given)


def test_a_broken_letter_does_not_stop_a_report(tmp_path: Path) -> None:
    assert "caf\ufffd" in save(Page("caf\udce9"), tmp_path / "page.html").read_text(encoding="utf-8")


def test_same_page_same_bytes(whole: str) -> None:
    assert render(whole_page()) == whole


def test_a_simulation_says_so_and_nothing_else_does() -> None:
    read = check(render(Page("Try", simulation=True)))
    assert ("div", {"class": "banner", "role": "note"}) in read.elements
    assert read.text.count(BANNER) == 2  # above everything, and where privacy is spoken of
    assert BANNER not in render(Page("Real", privacy=("Spent epsilon = 1.",)))


def test_the_page_forbids_whatever_it_does_not_need(whole: str) -> None:
    [policy] = [given["content"] for given in Read(whole).all("meta") if given.get("http-equiv")]
    assert "unsafe" not in policy
    style, script = (re.search(rf"<{tag}>(.*?)</{tag}>", whole, re.DOTALL)[1] for tag in ("style", "script"))
    digests = [base64.b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digests[0]}'",
        f"script-src 'sha256-{digests[1]}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert not re.search(r"\beval\b|new Function|innerHTML|fetch\(|XMLHttpRequest|import\(", script)


class TestPrivateCounts:
    """Under differential privacy no exact count gets in."""

    def test_missing_counts_are_said_to_be_private(self) -> None:
        page = Page("Private", private=True, before=diagram(count=None), sites=(SiteRow("a", Measured(0.1)),))
        read = check(render(page))
        assert read.text.count(PRIVATE) >= 2 + 2 * 10  # records, sites, and every bin of two tables
        assert not re.search(r"4321|8642|38889|38\.9k", read.text)

    def test_public_and_estimated_counts_may_be_shown(self) -> None:
        page = Page("Private", private=True, records=Measured(12_345, 12_000, 12_700), clients=Public(16))
        text = check(render(page)).text
        assert "about 12,345 (12,000 to 12,700)" in text
        assert "16 (public)" in text

    def test_noisy_bins_are_called_noisy(self) -> None:
        read = check(render(Page("Private", private=True, before=diagram(noisy=True, count=[-3.0] * 10))))
        assert "records (noisy)" in read.text
        assert "−3" not in read.text  # a count is not negative

    @pytest.mark.parametrize(
        "exact",
        [
            {"records": 312044},
            {"records": np.int64(312044)},
            {"clients": 16},
            {"clients": True},
            {"records": Measured(312044)},
            {"records": Measured(312044, 312044, 312044)},
            {"before": diagram()},
            {"after": diagram()},
            {"sites": (SiteRow("a", records=12),)},
        ],
    )
    def test_exact_counts_are_refused(self, exact: dict[str, object]) -> None:
        with pytest.raises(InputError, match="no exact count") as refusal:
            replace(Page("Private", private=True), **exact)  # type: ignore[arg-type]
        assert "312" not in str(refusal.value)

    def test_an_open_page_without_counts_says_nothing_of_them(self) -> None:
        assert PRIVATE not in render(Page("Open"))


def test_a_site_with_too_few_records_shows_no_number(whole: str) -> None:
    assert not re.search(r"0\.77|0\.66", Read(whole).text)


def test_saving_is_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "report.html"
    assert save(Page("First"), place) == place
    assert list(place.parent.iterdir()) == [place]
    broken = replace(Page("Second"), figures=(None,))  # type: ignore[arg-type]
    with pytest.raises(UndefinedError):
        save(broken, place)
    assert place.read_text(encoding="utf-8") == render(Page("First"))
    with pytest.raises(InputError, match="Nothing was written"):
        save(Page("A folder"), tmp_path / "deep")


def test_importing_the_page_is_light() -> None:
    code = "import fedcalib.report.page, fedcalib.report.row_plots, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"matplotlib", "jinja2", "PIL", "scipy"} & set(loaded)
