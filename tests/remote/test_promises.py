"""Attacks that worked on an earlier version, each as a test: what a lying server could learn, spend or break.

The letters are those of the findings: A a stated epsilon was false, B a limit could be passed, C availability.
"""

from __future__ import annotations

import itertools
import json
import os
import stat
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.accounting import ledger as ledgers
from fedcalib.artifacts.scaling import VectorScaling
from fedcalib.errors import TooFewClients
from fedcalib.loop import Outline, Step
from fedcalib.queries.class_tables import LabelCounts
from fedcalib.queries.scores import PairedBuckets, ScoreLeaves
from fedcalib.queries.shift import Confidence
from fedcalib.queries.temperature import TemperatureScores
from fedcalib.queries.wrapped import Calibrated
from fedcalib.query import Join, Query
from fedcalib.remote.journal import DiskJournal, PinnedSites
from fedcalib.remote.policy import Policy
from fedcalib.remote.protocol import Begin, Question, Refused, Share, read_reply, write
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import Site, write_identity
from fedcalib.secagg import Directory, SigningIdentity
from tests.contract.subjects import federation
from tests.remote.places import EXACT, GENEROUS, Meddler, Places, places, unchecked

STRICT = Policy(epsilon_a_query=0.1, epsilon_a_run=0.1, epsilon_a_year=1.0)
COHORT = fc.cohort.Cohort(3, 1.0, 3)
NAMES: Iterator[str] = (f"run-{number}" for number in itertools.count())


def site_of(records: fc.Records, folder: Path, policy: Policy = STRICT) -> Site:
    identity = SigningIdentity("north")
    directory = Directory({one.name: one.public for one in (identity, SigningIdentity("south"))})
    return Site(identity, directory, fc.Federation.of([records]), policy, DiskJournal(folder))


def ask(site: Site, query: Query, privacy: fc.privacy.Privacy, later: Query | None = None) -> Share | str:
    """A run of one query, perhaps replaced by another one when it is asked; the word of a refusal."""
    run = next(NAMES)
    begun = read_reply(
        site.handle("begin", write(Begin(Outline(run, (query,), privacy, COHORT, fc.Everyone()), ""))), object
    )
    if isinstance(begun, Refused):
        return begun.reason
    reply = read_reply(site.handle("ask", write(Question(run, 0, 0, later or query, (), ""))), object)
    assert isinstance(reply, Share | Refused)
    return reply.reason if isinstance(reply, Refused) else reply


def spent(site: Site) -> float:
    return float(sum(account.epsilon for account in site.journal.ledger.accounts()))


@pytest.mark.parametrize("model", [fc.LocalDP(0.1), fc.SourceLaplace(0.1)], ids=repr)
def test_a4a_no_coder_comes_from_a_server(model: fc.privacy.Privacy, tmp_path: Path) -> None:
    """A coder with fewer symbols than cells made a site refuse if and only if a record lay above; now none is sent."""
    site = site_of(fc.Records.of_scores([0.2, 0.9], [0, 1]), tmp_path)
    outline = Outline("r", (ScoreLeaves(8),), model, COHORT, fc.Everyone())
    text = json.loads(write(Begin(outline, "")))
    coder = {"type": "Coder", "fields": {"symbols": {"type": "Cell", "fields": {"cells": 3}}}}
    reports = {"type": "RandomisedReports", "fields": {"coders": {"map": {"leaves": coder}}}}
    for field in ("privacy", "mechanisms"):
        changed = json.loads(json.dumps(text))
        changed["fields"]["outline"]["fields"][field] = reports if field == "privacy" else [reports]
        assert read_reply(site.handle("begin", json.dumps(changed)), Refused).reason == "malformed"
    assert "never sent" in site.journal.log.lines()[0]["reason"]
    assert isinstance(ask(site, ScoreLeaves(8), model), Share)


@pytest.mark.parametrize("model", [fc.LocalDP(0.1), fc.SourceLaplace(0.1)], ids=repr)
def test_a4b_a_record_of_a_class_that_the_query_does_not_know_changes_no_reply(
    model: fc.privacy.Privacy, tmp_path: Path
) -> None:
    replies = []
    for present in (False, True):
        labels = np.arange(300) % 2
        labels[17] = 2 if present else 0
        logits = np.random.default_rng(0).normal(size=(300, 3))
        site = site_of(fc.Records.of_logits(logits, labels), tmp_path / str(present))
        share = ask(site, LabelCounts(2), model)
        assert isinstance(share, Share)
        replies.append((share.value.shape, share.value.dtype, len(write(replace(share, run=""))), spent(site)))
    assert replies[0] == replies[1]


def test_a4c_a_calibrator_that_overflows_shows_no_logit(tmp_path: Path) -> None:
    logits = np.stack([np.zeros(300), np.random.default_rng(0).normal(size=300)], axis=1)
    site = site_of(fc.Records.of_logits(logits, np.arange(300) % 2), tmp_path)
    for threshold in (1.0, 3.0, 50.0):
        factor = np.finfo(float).max / threshold * (1 - 1e-15)  # a logit above the threshold overflows
        query = Calibrated(Confidence(), VectorScaling((0.0, float(factor)), (0.0, 0.0)))
        assert ask(site, query, fc.SourceLaplace(0.01)) == "malformed"
    steep = Calibrated(Confidence(), VectorScaling((0.0, 1e12), (0.0, 0.0)))
    share = ask(site, steep, fc.SourceLaplace(0.01))
    assert isinstance(share, Share)
    assert np.abs(share.value).max() < 2.0**20 * (300 + 100 * 60)  # the sum of a term per record, and noise


@pytest.mark.parametrize(
    "model",
    [unchecked(fc.DistributedDP, 1e-15), unchecked(fc.SourceLaplace, 1e-15), unchecked(fc.SourceLaplace, 5e-324)],
    ids=repr,
)
def test_a4d_noise_that_would_saturate_is_refused(model: fc.privacy.Privacy, tmp_path: Path) -> None:
    """Noise of 2^80 steps was drawn as the constant 2^63, so that sums could be read exactly for epsilon 0."""
    site = site_of(fc.Records.of_scores([0.2, 0.9], [0, 1]), tmp_path)
    tree = fc.methods.ScoreTree(2, 3, share=1e-9)
    for query in (Confidence(), Join((tree, Confidence()))):
        assert ask(site, query, model) in ("declined", "malformed")
    tiny = Join((fc.methods.ScoreTree(2, 3, share=1e-12), fc.methods.ScoreTree(2, 3, share=1e12)))
    assert ask(site, tiny, fc.SourceLaplace(0.01)) == "mechanism"
    assert not (tmp_path / "ledger.db").exists()


def test_b2_one_year_has_one_limit_for_all_units_and_adjacencies(tmp_path: Path) -> None:
    data = federation(2, clients=4, records=400)
    site = places(data, Policy(epsilon_a_year=2.0), tmp_path).sites["site-00"]
    client_query = TemperatureScores((1.0,))
    runs = [
        (ScoreLeaves(4), fc.SourceLaplace(1.0)),  # a record added or removed
        (ScoreLeaves(4), fc.LocalDP(1.0)),  # a record's content
        (client_query, fc.SourceLaplace(1.0)),  # a client with all its records
    ]
    answered = [ask(site, query, privacy) for query, privacy in (*runs, *runs)]
    assert [isinstance(one, Share) for one in answered] == [True, True, False, False, False, False]
    assert set(answered[2:]) == {"budget"}
    assert spent(site) == 2.0
    assert len(site.journal.ledger.accounts()) == 1


def test_b2_what_was_spent_a_year_ago_counts_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    for days in (364, 366):
        folder = tmp_path / str(days)
        site = places(federation(2, clients=3, records=60), Policy(epsilon_a_year=1.0), folder).sites["site-00"]
        then = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")
        with monkeypatch.context() as patch:
            patch.setattr(ledgers, "_now", lambda then=then: then)
            assert isinstance(ask(site, ScoreLeaves(4), fc.SourceLaplace(1.0)), Share)
        outcomes.append(ask(site, ScoreLeaves(4), fc.SourceLaplace(1.0)))
    assert outcomes[0] == "budget"
    assert isinstance(outcomes[1], Share)


def even(clients: int, records: int) -> fc.Federation:
    return fc.Federation.simulated(classes=2, clients=clients, records=records)


def total(everybody: Places, names: list[str], run: str, lost: str = "", floor: int = 3) -> np.ndarray:
    """The exact sum over some sites, of which one may seem to drop out before its vector arrives."""
    sites = {name: everybody.sites[name].handle for name in names}
    transport = replace(everybody.transport(), sites=sites)
    silent = Meddler(transport, lambda site, action, reply: None if (site, action) == (lost, "ask") else reply)
    runtime = Remote(silent, everybody.directory, timeout=0.1, patience=0)
    query, cohort = ScoreLeaves(1 << 10), fc.cohort.Cohort(len(names), 1.0, floor)
    outline = Outline(run, (query,), fc.SecAgg(), cohort, fc.Everyone(dropout=0.4))
    runtime.prepare(outline)
    step = Step(run, 0, 0, query, outline.mechanisms[0], cohort, fc.Everyone(), fc.Secure())
    return np.asarray(runtime.total(step).value).view(np.int64)


def test_b4_two_exact_sums_that_differ_by_one_site_are_refused(tmp_path: Path) -> None:
    """With 4 sites and then 3 the difference was each record of the fourth; by roster, and by a feigned drop-out."""
    everybody = places(even(clients=8, records=800), EXACT, tmp_path)
    names = list(everybody.sites)
    first = total(everybody, names, "A")
    assert first.sum() == 800
    for run, chosen, lost in (("B", names[1:], ""), ("C", names, names[0])):
        with pytest.raises(TooFewClients, match="the difference would reveal some of them"):
            total(everybody, chosen, run, lost)
    reason = everybody.sites[names[1]].journal.log.lines()
    told = [line["reason"] for line in reason if line.get("word") == "roster"]
    assert "would tell what 1 sites hold" in told[0]
    assert total(everybody, names[:-3], "D").sum() == 500  # three sites less: the difference is a sum over three
    assert total(everybody, names, "E").tolist() == first.tolist()
    changed = replace(everybody, sites={name: _with(site) for name, site in everybody.sites.items()})
    assert total(changed, names[1:], "F").sum() == 7 * 99  # other data, other sums


def _with(site: Site) -> Site:
    return replace(site, federation=site.federation.where(slice(1, None)))


def test_b4_runs_without_an_epsilon_are_counted(tmp_path: Path) -> None:
    everybody = places(even(clients=3, records=90), replace(EXACT, exact_runs_per_year=2), tmp_path)
    for _ in range(2):
        fc.run(fc.FedBin(), everybody.runtime(), fc.SecAgg())
    with pytest.raises(TooFewClients, match="too little of its yearly budget left"):
        fc.run(fc.FedBin(), everybody.runtime(), fc.SecAgg())
    fc.run(fc.FedBin(), everybody.runtime(), fc.DistributedDP(0.5))


def test_b4_beyond_fifty_sites_only_their_number_is_known(tmp_path: Path) -> None:
    journal = DiskJournal(tmp_path)
    journal.pin_roster("data", PinnedSites((), 60), 3)
    journal.pin_roster("data", PinnedSites((), 60), 3)
    journal.pin_roster("data", PinnedSites((), 55), 3)
    with pytest.raises(fc.errors.PolicyError, match="60 sites"):
        journal.pin_roster("data", PinnedSites((), 59), 3)


SMALL = {"type": "Hits", "fields": {}}
BOMBS = {
    "fraction": '{"type":"Relay","fields":{"run":"x","text":{"fraction":"1e2000000000"}}}',
    "long integer": '{"type":"Relay","fields":{"run":"x","text":' + "9" * 4000 + "}}",
    "values": '{"type":"Relay","fields":{"run":"x","text":[' + "0," * 600_000 + "0]}}",
    "depth": "[" * 100_000,
    "objects": json.dumps({"type": "Join", "fields": {"parts": [SMALL] * 65_536}}),
}


@pytest.mark.parametrize("name", BOMBS)
def test_c2_a_short_text_takes_no_time_and_no_memory(name: str, tmp_path: Path) -> None:
    site = site_of(fc.Records.of_scores([0.2, 0.9], [0, 1]), tmp_path)
    tracemalloc.start()
    try:
        assert read_reply(site.handle("confirm", BOMBS[name]), Refused).reason == "malformed"
        assert tracemalloc.get_traced_memory()[1] < 1 << 27
    finally:
        tracemalloc.stop()


def forms(site: Site, query: dict, cohort: dict | None = None, privacy: dict | None = None) -> str:
    """The word with which a site answers an outline that is written by hand."""
    outline = {
        "run": "bomb",
        "queries": [query],
        "privacy": privacy or {"type": "DistributedDP", "fields": {"epsilon": 0.1, "delta": 1e-6}},
        "cohort": {"type": "Cohort", "fields": cohort or {"expected": 3.0, "floor": 3}},
        "participation": {"type": "Everyone", "fields": {}},
    }
    begin = {"type": "Begin", "fields": {"outline": {"type": "Outline", "fields": outline}, "terms": ""}}
    return read_reply(site.handle("begin", json.dumps(begin)), Refused).reason


def query_of(name: str, **fields: object) -> dict:
    return {"type": name, "fields": fields}


HUGE = {
    "classes": query_of("LabelCounts", classes=10**12),
    "cells": query_of("ClassCounts", classes=1 << 16) | {"fields": {"classes": 1 << 16, "clip": 1e300}},
    "features": query_of("ClassMoments", classes=2, features=10**9, radius=1.0),
    "many features": query_of("ClassMoments", classes=1 << 16, features=1 << 12, radius=1.0),
    "arity": query_of("ScoreTree", arity=2**60, height=20),
    "bins": query_of("LabelHistogram", classes=1 << 12, bins=1 << 13),
    "noise": query_of("ScoreLeaves", leaves=1 << 20),
    "parts": query_of("Join", parts=[SMALL] * 9000),
    "steps": query_of(
        "LocalFit", family=query_of("TemperatureFamily"), parameters=[1.0], clip=1.0, ridge=1.0, steps=10**9
    ),
    "depth": query_of("Join", parts=[query_of("Join", parts=[query_of("Join", parts=[SMALL])])]),
}


@pytest.mark.parametrize("name", [name for name in HUGE if name != "depth"])
def test_c2_a_query_that_is_too_large_is_refused_before_it_is_built(name: str, tmp_path: Path) -> None:
    site = site_of(fc.Records.of_scores([0.2, 0.9], [0, 1]), tmp_path)
    tracemalloc.start()
    try:
        assert forms(site, HUGE[name]) in ("malformed", "work")
        assert tracemalloc.get_traced_memory()[1] < 1 << 27
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("clip", [5e-324, -5e-324, 1e300])
def test_a_number_whose_products_vanish_or_overflow_is_refused(clip: float, tmp_path: Path) -> None:
    """A clip of 5e-324 was 0 after it was multiplied by a bound, and 0/0 after that."""
    site = site_of(fc.Records.of_scores([0.2, 0.9], [0, 1]), tmp_path)
    table = query_of("LogitResiduals", classes=2, cells=4, reach=1.0)
    assert forms(site, query_of("Clipped", query=table, clip=clip)) == "malformed"


def test_c2_noise_for_billions_of_clients_is_not_sized(tmp_path: Path) -> None:
    """The accounting of 2^33 discrete Gaussian shares took 64 gibibytes."""
    site = site_of(fc.Records.of_scores([0.2, 0.9], [0, 1]), tmp_path)
    many = {"expected": 2.0**33, "floor": 1 << 33}
    assert forms(site, query_of("ScoreLeaves", leaves=4), many) == "malformed"
    twenty = query_of("ScoreTree", arity=2, height=20)
    assert forms(site, twenty, {"expected": 2.0**20, "floor": 1 << 20}) == "work"


@pytest.mark.parametrize("value", [2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_a_share_that_could_wrap_a_sum_names_its_site(value: int) -> None:
    def spoil(site: str, action: str, reply: str) -> str | None:
        if (site, action) != ("site-03", "ask"):
            return reply
        share = read_reply(reply, Share)
        assert isinstance(share, Share)
        return write(replace(share, value=np.full_like(share.value, value)))

    everybody = places(federation(2))
    runtime = Remote(Meddler(everybody.transport(), spoil), everybody.directory)
    with pytest.raises(TooFewClients, match="site-03' sent a reply that cannot be used: Expected whole numbers up to"):
        fc.run(fc.FedBin(), runtime, fc.SourceLaplace(1.0))


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def test_whatever_a_site_keeps_is_private_from_its_first_byte(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        state = tmp_path / "site-00"
        state.mkdir(mode=0o755)
        everybody = places(federation(2, clients=3, records=60), GENEROUS, tmp_path)
        fc.run(fc.FedBin(), everybody.runtime(), fc.DistributedDP(1.0))
        fc.run(fc.FedBin(), everybody.runtime(), fc.SecAgg())
        assert len(everybody.sites["site-00"].journal.secret()) == 32
        loose = tmp_path / "keys" / "identity.json"
        loose.parent.mkdir()
        loose.write_text("an older one")
        write_identity(loose, SigningIdentity("north"))
    finally:
        os.umask(before)
    assert {"lock", "ledger.db", "exact.json", "log.jsonl", "secret"} <= {path.name for path in state.iterdir()}
    assert modes(state) == {0o600}
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "runs").stat().st_mode) == 0o700
    assert modes(tmp_path / "keys") == {0o600}


WORDS = fc.Records.of_scores([0.2, 0.9] * 50, [0, 1] * 50, rival=["much"] * 100)


def test_a_failure_while_answering_looks_like_an_empty_site(tmp_path: Path) -> None:
    """A column of scores that holds words: the site answers as if it held no record, and logs why."""
    site = site_of(WORDS, tmp_path)
    share = ask(site, PairedBuckets((0.5,), (0.5,), 2), fc.LocalDP(0.1))
    assert isinstance(share, Share)
    assert share.value.sum() == 0  # nobody reported
    line = site.journal.log.lines()[-1]
    assert (line["outcome"], line["empty"]) == ("answered", True)
    assert "found ValueError" in line["reason"]
    assert spent(site) == pytest.approx(0.1)


@pytest.mark.parametrize("privacy", [fc.DistributedDP(0.5), fc.DistributedDP(0.5, 1e-6)], ids=repr)
def test_under_masks_a_failure_looks_like_an_empty_site_too(privacy: fc.privacy.Privacy, tmp_path: Path) -> None:
    everybody = places(fc.Federation.of([WORDS] * 4), Policy(), tmp_path)
    query, cohort = PairedBuckets((0.5,), (0.5,), 2), fc.cohort.Cohort(4, 1.0, 4)
    outline = Outline("run", (query,), privacy, cohort, fc.Everyone())
    runtime = everybody.runtime()
    runtime.prepare(outline)
    step = Step("run", 0, 0, query, outline.mechanisms[0], cohort, fc.Everyone(), fc.Secure())
    value, _ = outline.mechanisms[0].decode(query, runtime.total(step).value, 4, fc.Secure())
    assert np.abs(value).max() < 60 / 0.5  # noise alone
    lines = [line for site in everybody.sites.values() for line in site.journal.log.lines()]
    assert [line["empty"] for line in lines if line["action"] == "ask"] == [True] * 4


def test_an_exact_answer_that_fails_is_refused(tmp_path: Path) -> None:
    site = site_of(WORDS, tmp_path, replace(GENEROUS, most_records=100))
    assert ask(site, PairedBuckets((0.5,), (0.5,), 2), fc.Open()) == "mechanism"
    assert isinstance(ask(site, ScoreLeaves(2), fc.Open()), Share)
