"""What sites tell about their budgets, as each allows it; asking spends nothing and leaves nothing behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib.deploy.job import Job
from fedcalib.errors import InputError, TooFewClients
from fedcalib.records import Schema
from fedcalib.remote.inquiry import SiteBudget, inquire
from fedcalib.remote.policy import Policy
from fedcalib.remote.runtime import Remote
from tests.contract.subjects import federation
from tests.remote.places import GENEROUS, LocalTransport, Places, places, with_site
from tests.remote.test_preflight import spend

DATA = federation(2)  # five clients
RULES = replace(GENEROUS, epsilon_a_year=1.0)
TOLD = {"site-00": "exact", "site-01": "enough", "site-02": "no", "site-03": "exact", "site-04": "exact"}


@pytest.fixture
def everybody(tmp_path: Path) -> Places:
    found = places(DATA, RULES, tmp_path)
    for name, told in TOLD.items():
        found = with_site(found, name, policy=replace(RULES, tell_budget=told))
    for name in ("site-01", "site-02", "site-03"):
        spend(found, name, 0.75)
    return found


def asked(everybody: Places, epsilon: float, **changes: object) -> dict[str, SiteBudget]:
    job = Job("fed-bin", "distributed", 5, epsilon=epsilon, **changes)
    return inquire(everybody.transport(), everybody.directory, job.outline(), job.schema, 0.1)


def test_each_site_tells_what_its_policy_allows(everybody: Places) -> None:
    assert asked(everybody, 0.1) == {
        "site-00": SiteBudget(True, "", 1.0),
        "site-01": SiteBudget(True, "", None),
        "site-02": SiteBudget(True, "", None),
        "site-03": SiteBudget(True, "", 0.25),
        "site-04": SiteBudget(True, "", 1.0),
    }
    found = asked(everybody, 0.5)
    assert [site for site, one in found.items() if not one.could] == ["site-01", "site-02", "site-03"]
    assert "too little of its yearly budget left" in found["site-01"].why
    assert "declined for a reason that is in its own log" in found["site-02"].why
    assert "too little" in found["site-03"].why and found["site-03"].epsilon_left == 0.25


def test_a_run_that_does_not_fit_is_refused_in_the_same_words(everybody: Places) -> None:
    runtime = Remote(everybody.transport(), everybody.directory, sites=5, timeout=0.1, expected=Schema(2, 5))
    with pytest.raises(TooFewClients, match=r"site-01' has too little .* left.*site-02' declined for a reason") as told:
        fc.run(fc.FedBin(), runtime, fc.DistributedDP(epsilon=0.5))
    assert "0.25" not in str(told.value)
    assert "Left: 0.25" in everybody.sites["site-02"].journal.log.lines()[-1]["reason"]  # which its operator reads


def test_asking_spends_nothing_and_leaves_no_run_behind(everybody: Places) -> None:
    before = [site.journal.spent_in_a_year() for site in everybody.sites.values()]
    asked(everybody, 0.1)
    assert [site.journal.spent_in_a_year() for site in everybody.sites.values()] == before
    assert not any((site.journal.folder / "runs").exists() for site in everybody.sites.values())


def test_sites_that_are_away_or_have_other_classes_are_named(everybody: Places) -> None:
    here = {name: site.handle for name, site in everybody.sites.items() if name != "site-03"}
    job = Job("fed-bin", "distributed", 5, epsilon=0.1, classes=3)
    found = inquire(LocalTransport(here), everybody.directory, job.outline(), job.schema, 0.1)
    assert "is not connected" in found["site-03"].why
    assert found["site-00"] == SiteBudget(False, "has 2 classes, and the job 3; set classes in the job", 1.0)


def test_a_site_that_is_not_needed_is_not_missed(everybody: Places) -> None:
    here = {name: site.handle for name, site in everybody.sites.items() if name != "site-04"}
    job = Job("fed-bin", "distributed", 4, epsilon=0.5)
    found = inquire(LocalTransport(here), everybody.directory, job.outline(), job.schema, 0.1)
    assert list(found) == ["site-00", "site-01", "site-02", "site-03"]


def test_another_word_for_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('tell_budget = "exact"\n')
    assert Policy.read(tmp_path / "policy.toml").tell_budget == "exact"
    (tmp_path / "policy.toml").write_text("tell_budget = true\n")
    with pytest.raises(InputError, match="Expected no, enough, exact as tell_budget, found True"):
        Policy.read(tmp_path / "policy.toml")
