"""The reproduction page: a verdict or a reason in every row, no number that is not computed from a CSV file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.maddock import published_tables
from benchmarks.reproduction import page
from benchmarks.reproduction.findings import BENCHMARKS, Claim, Finding, Item
from benchmarks.reproduction.steps import SOURCES, Compared

from benchmarks import reproduce

ITEMS = [(source.number, item) for source in page.SOURCES for item in source.items]
NAMES = re.compile(r"(CIFAR|CINIC)-100?|LeNet-5|Figure \d+")


def test_the_page_and_its_figures_are_what_the_files_say() -> None:
    assert page.figures() == page.FIGURES.read_text(), "run python -m benchmarks.reproduction.page"
    assert page.page() == page.PAGE.read_text(encoding="utf-8"), "run python -m benchmarks.reproduction.page"


@pytest.mark.parametrize(("source", "item"), ITEMS, ids=[f"{number} {item.name}" for number, item in ITEMS])
def test_every_row_has_a_verdict_or_a_reason_and_files_that_exist(source: str, item: Item) -> None:
    assert bool(item.claims) != bool(item.reason)
    assert item.verdict in ("confirmed", "partly", "undecided", "refuted", "not tested", "nothing to test")
    assert not item.claims or item.files
    assert all((BENCHMARKS / name).exists() for name in (*item.files, *item.pictures))


@pytest.mark.parametrize(("source", "item"), ITEMS, ids=[f"{number} {item.name}" for number, item in ITEMS])
def test_sentences_hold_no_number_of_their_own(source: str, item: Item) -> None:
    found = [finding for _, finding in page.findings(item)]
    written = [re.sub(r"{[^}]*}", "", finding.sentence) for finding in found]
    for text in (*written, *(claim.says for claim in item.claims), item.reason, item.data):
        assert not re.search(r"\d", NAMES.sub("", text)), text


def test_a_verdict_follows_from_its_claims() -> None:
    def item(*held: bool | None) -> Item:
        return Item("x", "y", "same", claims=tuple(Claim("z", lambda h=one: Finding(h, "")) for one in held))

    assert [item(True, True).verdict, item(False).verdict, item(True, False).verdict, item(None).verdict] == [
        *("confirmed", "refuted", "partly", "undecided")
    ]


def test_a_quick_run_is_compared_by_key_and_tolerance() -> None:
    wanted = Compared("f.csv", ("run",), ("a", "b"), absolute=0.1, relative=0.5)
    stored = [{"run": "0", "a": "1", "b": "0"}, {"run": "1", "a": "1", "b": "0"}]
    fresh = [{"run": "0", "a": "1.4", "b": "0.2"}, {"run": "7", "a": "9", "b": "9"}]
    assert wanted.judged(fresh, stored) == (2, 1)


def test_a_quick_run_without_its_data_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "HERE", tmp_path)
    assert not reproduce.quick("004", {})


def test_every_source_has_steps_whose_files_exist() -> None:
    assert list(SOURCES) == [source.number for source in page.SOURCES]
    for steps in SOURCES.values():
        assert any(step.quick and step.compared for step in steps)
        for step in steps:
            assert (BENCHMARKS / (step.module.replace(".", "/") + ".py")).exists()
            assert all((BENCHMARKS / name).exists() for name in step.writes)


def test_the_page_of_the_multiclass_benchmark_is_what_its_file_says() -> None:
    for page_name, tables in (("README.md", published_tables.PAGE), ("annex.md", published_tables.ANNEX)):
        text = (BENCHMARKS / "maddock" / page_name).read_text()
        assert all(f"<!-- {name} -->\n\n{table()}\n" in text for name, table in tables.items())


@pytest.mark.parametrize("readme", sorted(BENCHMARKS.glob("*/README.md")), ids=lambda path: path.parent.name)
def test_a_benchmark_page_fits_on_two_screens(readme: object) -> None:
    lines = readme.read_text().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 120
