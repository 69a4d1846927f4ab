"""A site keeps the last word: what it refuses, what it writes down, and that the log cannot be edited unseen."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import fedcalib as fc
from fedcalib.errors import InputError, LedgerError, TooFewClients
from fedcalib.loop import Outline
from fedcalib.queries.class_tables import LabelHistogram
from fedcalib.query import Block, RecordQuery, Rows
from fedcalib.records import Records
from fedcalib.remote.journal import DiskJournal
from fedcalib.remote.policy import Policy
from fedcalib.remote.protocol import Begin, Question, Refused, Share, read, read_reply, write
from fedcalib.remote.site import open_site, write_identity
from fedcalib.secagg import Directory, SigningIdentity
from tests.contract.subjects import federation
from tests.remote.places import EXACT, Places, places

DATA = federation(2, records=2000)


def refusal(all_places: Places, method: fc.Method, privacy: fc.privacy.Privacy, **options: object) -> str:
    with pytest.raises(TooFewClients) as caught:
        fc.run(method, all_places.runtime(), privacy, **options)
    return str(caught.value)


def words(all_places: Places) -> list[str]:
    """What the first site's log says that it refused."""
    lines = all_places.sites["site-00"].journal.log.lines()
    return [f"{line['word']}: {line['reason']}" for line in lines if line["outcome"] == "refused"]


@dataclass(frozen=True)
class Nosy(RecordQuery):
    """A query that nobody registered."""

    @property
    def blocks(self) -> dict[str, Block]:
        return {"count": Block((1,), integral=True)}

    def rows(self, records: Records) -> Rows:
        return Rows(np.zeros((len(records), 1), dtype=np.int64), None)


def test_an_unregistered_query_is_not_even_read(tmp_path: Path) -> None:
    site = places(DATA, Policy(), tmp_path).sites["site-00"]
    outline = Outline("r", (LabelHistogram(2, 15),), fc.DistributedDP(1.0), fc.cohort.Cohort(5), fc.Everyone())
    text = write(Begin(replace(outline, queries=(Nosy(),)), ""))
    assert read(site.handle("begin", text), Refused).reason == "malformed"
    assert "Expected a registered type, found 'Nosy'" in site.journal.log.lines()[-1]["reason"]


def test_a_query_that_is_not_on_the_list_is_refused(tmp_path: Path) -> None:
    all_places = places(DATA, replace(EXACT, queries=("ScoreTree",)), tmp_path)
    assert "does not allow such a query" in refusal(all_places, fc.FedBin(), fc.SecAgg())
    assert words(all_places) == ["query: Expected one of the allowed ScoreTree, found LabelHistogram."]


def test_a_model_that_is_not_on_the_list_is_refused(tmp_path: Path) -> None:
    policy = replace(EXACT, models=("TemperatureFamily",))
    all_places = places(DATA, policy, tmp_path)
    assert "does not allow such a query" in refusal(all_places, fc.FedVector(rounds=1), fc.SecAgg())
    fc.run(fc.FedTemp(rounds=1), places(DATA, policy, tmp_path / "2").runtime(), fc.SecAgg())


@pytest.mark.parametrize("privacy", [fc.Open(), fc.SecAgg(), fc.UserGaussian(1.0, 1e-5, clip=10)], ids=repr)
def test_by_default_no_server_reads_an_exact_sum(privacy: fc.privacy.Privacy, tmp_path: Path) -> None:
    all_places = places(DATA, Policy(), tmp_path)
    assert "does not allow this privacy model" in refusal(all_places, fc.FedBin(), privacy)
    assert words(all_places)[0].startswith("mechanism: Expected one of DistributedDP, LocalDP, SourceLaplace, found")


def test_an_epsilon_above_policy_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    all_places = places(DATA, Policy(epsilon_a_run=0.5, epsilon_a_query=0.5), tmp_path)
    said = refusal(all_places, fc.FedBin(), fc.DistributedDP(1.0))
    assert "Site 'site-00' allows a smaller epsilon only; spend less" in said
    assert not (tmp_path / "site-00" / "ledger.db").exists()
    fc.run(fc.FedBin(), all_places.runtime(), fc.DistributedDP(0.5))


def test_many_small_queries_do_not_add_up_beyond_a_run(tmp_path: Path) -> None:
    all_places = places(DATA, Policy(epsilon_a_query=0.2, epsilon_a_run=0.9), tmp_path)
    assert "smaller epsilon" in refusal(all_places, fc.FedTemp(rounds=8), fc.DistributedDP(1.0))


def test_a_small_cohort_is_refused(tmp_path: Path) -> None:
    all_places = places(DATA, replace(EXACT, fewest_clients=4), tmp_path)
    said = refusal(all_places, fc.FedBin(), fc.SecAgg(), participation=fc.Everyone(dropout=0.4))
    assert "answers only together with more sites" in said
    assert words(all_places)[0] == "cohort: Expected sums over 4 clients, found 3."


def test_too_few_records_are_not_told_to_the_server(tmp_path: Path) -> None:
    all_places = places(DATA, replace(EXACT, fewest_records=100_000), tmp_path)
    said = refusal(all_places, fc.FedBin(), fc.SecAgg())
    assert "declined for a reason that is in its own log" in said
    assert "100000 records" in words(all_places)[0]


def test_a_spent_budget_refuses_the_next_run(tmp_path: Path) -> None:
    all_places = places(DATA, Policy(epsilon_a_year=1.5), tmp_path)
    fc.run(fc.FedBin(), all_places.runtime(), fc.DistributedDP(1.0))
    assert "too little of its yearly budget left" in refusal(all_places, fc.FedBin(), fc.DistributedDP(1.0))
    assert "Left: 0.5" in words(all_places)[0]
    fc.run(fc.FedBin(), all_places.runtime(), fc.DistributedDP(0.5))


def test_plain_reports_are_given_once_and_paid_once(tmp_path: Path) -> None:
    all_places = places(DATA, Policy(), tmp_path)
    site = all_places.sites["site-00"]
    plan = fc.method.Plan.of(fc.FedBin(), DATA.schema)
    cohort = fc.cohort.Cohort(5, 1.0, 5)
    outline = Outline("run", plan.queries, fc.SourceLaplace(1.0), cohort, fc.Everyone())
    site.handle("begin", write(Begin(outline, "")))
    texts = [site.handle("ask", write(Question("run", 0, n, plan.queries[0], (), ""))) for n in range(3)]
    assert isinstance(read_reply(texts[0], Share), Share)
    assert len(set(texts)) == 1
    assert float(site.journal.ledger.accounts()[0].epsilon) == pytest.approx(1.0)
    changed = replace(plan.queries[0], bins=plan.queries[0].bins + 1)
    assert read(site.handle("ask", write(Question("run", 0, 0, changed, (), ""))), Refused).reason == "query"


def test_an_exact_mechanism_is_never_answered_without_masks(tmp_path: Path) -> None:
    site = places(DATA, EXACT, tmp_path).sites["site-00"]
    plan = fc.method.Plan.of(fc.FedBin(), DATA.schema)
    cohort = fc.cohort.Cohort(5, 1.0, 5)
    site.handle("begin", write(Begin(Outline("run", plan.queries, fc.SecAgg(), cohort, fc.Everyone()), "")))
    reply = site.handle("ask", write(Question("run", 0, 0, plan.queries[0], (), "")))
    assert read(reply, Refused).reason == "protocol"


def test_a_run_may_not_change_after_it_was_agreed(tmp_path: Path) -> None:
    site = places(DATA, Policy(), tmp_path).sites["site-00"]
    plan = fc.method.Plan.of(fc.FedBin(), DATA.schema)
    cohort = fc.cohort.Cohort(5, 1.0, 5)
    for epsilon, outcome in ((0.5, "answered"), (0.9, "refused")):
        outline = Outline("run", plan.queries, fc.SourceLaplace(epsilon), cohort, fc.Everyone())
        site.handle("begin", write(Begin(outline, "")))
        assert site.journal.log.lines()[-1]["outcome"] == outcome


@pytest.mark.parametrize("edit", ["change", "drop", "swap", "add", "cut"])
def test_an_edited_log_is_found_out(edit: str, tmp_path: Path) -> None:
    all_places = places(DATA, EXACT, tmp_path)
    refusal(all_places, fc.FedBin(), fc.Open())
    fc.run(fc.FedBin(), all_places.runtime(), fc.SecAgg())
    log = all_places.sites["site-00"].journal.log
    head = log.verify()
    lines = log.path.read_text().splitlines()
    assert len(lines) > 4
    edited = {
        "change": [line.replace('"refused"', '"answered"') for line in lines],
        "drop": lines[:1] + lines[2:],
        "swap": [lines[1], lines[0], *lines[2:]],
        "add": [lines[0], lines[0], *lines[1:]],
        "cut": lines[:-1],
    }[edit]
    log.path.write_text("\n".join(edited) + "\n")
    with pytest.raises(LedgerError):
        log.verify(head)


def test_a_site_that_cannot_read_its_records_does_not_open_and_says_why_to_itself_alone(tmp_path: Path) -> None:
    def broken() -> fc.Federation:
        raise ValueError("patient 4711 has a label of 9")

    identity = SigningIdentity("north")
    write_identity(tmp_path / "identity.json", identity)
    (tmp_path / "directory.json").write_text(Directory({"north": identity.public}).to_json())
    config = {name: str(tmp_path / f"{name}.json") for name in ("identity", "directory")}
    config["state"] = str(tmp_path / "state")
    with pytest.raises(ValueError, match="4711"):
        open_site(config, broken, Policy())
    with pytest.raises(InputError, match="set most_records in the policy"):
        open_site(config, lambda: DATA, Policy(most_records=100))
    lines = DiskJournal(tmp_path / "state").log.lines()
    assert [line["action"] for line in lines] == ["open", "open"]
    assert "4711" not in json.dumps(lines)
    assert open_site(config, lambda: DATA, Policy()).handle("hello", "")


def test_a_policy_file_says_what_the_class_says(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('queries = ["ScoreTree"]\nepsilon_a_year = 3\nfewest_clients = 5\nquorum = "3/4"\n')
    policy = Policy.read(path)
    assert (policy.queries, policy.epsilon_a_year, policy.fewest_clients) == (("ScoreTree",), 3.0, 5)
    for text in (
        "epsilon = 1\n",
        'queries = "all"\n',
        "epsilon_a_run = -1\n",
        "= 3",
        'quorum = "x"\n',
        "most_work = -1\n",
        'mechanisms = ["FixedPoint"]\n',
        "delta = true\n",
    ):
        path.write_text(text)
        with pytest.raises(InputError):
            Policy.read(path)
