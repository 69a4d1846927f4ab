"""Who takes part in a step is drawn from a secret that only the server keeps."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from tests.contract.subjects import federation
from tests.remote.places import Meddler, places

import fedcalib as fc
from fedcalib.errors import InputError, TranscriptError
from fedcalib.loop import Runtime, Step, Total
from fedcalib.types import Bools

SAMPLED = [fc.Poisson(0.5), fc.Disjoint(3)]
PRIVATE = fc.UserGaussian(1.0, 1e-6, clip=5.0)
METHOD = fc.FedTemp(rounds=3)


@dataclass
class Watched(Runtime):
    """A runtime that keeps the sample of each step, and may stop before one of them."""

    inner: fc.InProcess
    stop: int = 99
    seen: dict[int, Bools] = field(default_factory=dict)

    @property
    def schema(self) -> fc.Schema:
        return self.inner.schema

    def total(self, step: Step) -> Total:
        if step.index == self.stop:
            raise KeyboardInterrupt
        assert step.members is not None
        self.seen[step.index] = step.members
        return self.inner.total(step)


def watched(stop: int = 99) -> Watched:
    return Watched(fc.InProcess(federation(2, clients=60, records=600)), stop)


def texts_below(folder: Path) -> str:
    """All that a folder holds, but for secrets."""
    found = [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.suffix != ".secret"]
    return "\n".join(found)


@pytest.mark.parametrize("drawn", SAMPLED, ids=repr)
def test_p12_the_sample_cannot_be_rebuilt_from_what_is_written(drawn: fc.Poisson | fc.Disjoint, tmp_path: Path) -> None:
    """Finding p12: the sample followed from the run's name, which ledger and transcript hold and sites are sent."""
    runtime, ledger = watched(), fc.Ledger(tmp_path / "ledger.db")
    fc.run(METHOD, runtime, PRIVATE, participation=drawn, transcript=tmp_path / "run.jsonl", ledger=ledger)
    secret = bytes.fromhex((tmp_path / "run.jsonl.secret").read_text())
    assert len(runtime.seen) == 3
    assert all((drawn.members(60, step, secret) == mask).all() for step, mask in runtime.seen.items())
    written = texts_below(tmp_path)
    assert secret.hex() not in written and secret.decode("latin-1") not in written
    name = ledger.entries()[-1].run
    for guess in (name.encode(), bytes.fromhex(name) * 2, name.encode().ljust(32, b"\0")):
        assert any((drawn.members(60, step, guess.ljust(32)) != mask).any() for step, mask in runtime.seen.items())


def test_sites_are_not_sent_the_secret(tmp_path: Path) -> None:
    everybody = places(federation(2, clients=12, records=1200))
    meddler = Meddler(everybody.transport(), lambda site, action, reply: reply)
    sent: list[str] = []
    exchange = meddler.exchange

    def overheard(action: str, texts: dict[str, str], timeout: float) -> dict[str, str]:
        sent.extend(texts.values())
        return exchange(action, texts, timeout)

    meddler.exchange = overheard  # type: ignore[method-assign]
    runtime = type(everybody.runtime())(meddler, everybody.directory)
    fc.run(fc.FedBin(), runtime, fc.SecAgg(), participation=fc.Poisson(0.7), transcript=tmp_path / "run.jsonl")
    secret = (tmp_path / "run.jsonl.secret").read_text()
    assert sent and not any(secret in text for text in sent)


@pytest.mark.parametrize("drawn", SAMPLED, ids=repr)
def test_a_resumed_run_draws_from_the_secret_that_it_began_with(
    drawn: fc.Poisson | fc.Disjoint, tmp_path: Path
) -> None:
    file = tmp_path / "run.jsonl"
    with pytest.raises(KeyboardInterrupt):
        fc.run(METHOD, watched(stop=1), PRIVATE, participation=drawn, transcript=file)
    place = tmp_path / "run.jsonl.secret"
    assert place.stat().st_mode & 0o777 == 0o600
    secret = bytes.fromhex(place.read_text())
    runtime = watched()
    fc.run(METHOD, runtime, PRIVATE, participation=drawn, transcript=file)
    assert sorted(runtime.seen) == [1, 2]
    assert all((drawn.members(60, step, secret) == mask).all() for step, mask in runtime.seen.items())


@pytest.mark.parametrize(("content", "said"), [(None, "found no such file.*Put the file back"), ("??", "damaged")])
def test_a_run_that_lost_its_secret_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    file, place = tmp_path / "run.jsonl", tmp_path / "run.jsonl.secret"
    with pytest.raises(KeyboardInterrupt):
        fc.run(METHOD, watched(stop=1), PRIVATE, participation=SAMPLED[0], transcript=file)
    place.unlink()
    if content is not None:
        place.write_text(content)
    before = file.read_text()
    with pytest.raises(TranscriptError, match=said):
        fc.run(METHOD, watched(), PRIVATE, participation=SAMPLED[0], transcript=file)
    assert file.read_text() == before


def test_a_finished_run_is_replayed_without_its_secret(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    first = fc.run(METHOD, watched(), PRIVATE, participation=SAMPLED[0], transcript=file)
    copy = shutil.copy(file, tmp_path / "shown.jsonl")
    again = fc.run(METHOD, fc.Replay(copy), PRIVATE, participation=SAMPLED[0], transcript=copy)
    assert again.artifact == first.artifact


def test_runs_without_sampling_keep_no_secret(tmp_path: Path) -> None:
    fc.run(METHOD, fc.InProcess(federation(2)), PRIVATE, transcript=tmp_path / "run.jsonl")
    assert not (tmp_path / "run.jsonl.secret").exists()


def test_two_releases_have_different_samples_and_a_seed_repeats_them() -> None:
    def sample(randomness: fc.Secure | fc.Simulated) -> str:
        runtime = watched()
        fc.run(METHOD, runtime, PRIVATE, participation=SAMPLED[0], randomness=randomness)
        return json.dumps([mask.tolist() for mask in runtime.seen.values()])

    assert sample(fc.Secure()) != sample(fc.Secure())
    assert sample(fc.Simulated(1)) == sample(fc.Simulated(1))
    assert sample(fc.Simulated(1)) != sample(fc.Simulated(2))


def test_a_step_without_its_sample_is_refused() -> None:
    """A runtime that never draws would otherwise ask everybody, and the accounting would believe in a sample."""
    query = fc.method.Plan.of(METHOD, fc.Schema(2, 60)).queries[0]
    cohort = fc.Poisson(0.5).cohort(60)
    with pytest.raises(InputError, match="sampled clients"):
        Step("run", 0, 0, query, fc.privacy.open.Exact(), cohort, fc.Poisson(0.5), fc.Secure())


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_clients_are_sampled_at_the_rate_and_independently(rate: float) -> None:
    secret, clients, steps = bytes(range(32)), 2000, 200
    masks = np.array([fc.Poisson(rate).members(clients, step, secret) for step in range(steps)])
    spread = np.sqrt(rate * (1 - rate))
    assert abs(masks.mean() - rate) < 5 * spread / np.sqrt(masks.size)
    for pair in (masks[:, 1:] & masks[:, :-1], masks[1:] & masks[:-1]):  # neighbouring clients, neighbouring steps
        assert abs(pair.mean() - rate**2) < 5 * rate * np.sqrt(3 / pair.size)


def test_dealt_cohorts_do_not_change_when_a_client_is_emptied() -> None:
    """Client-level privacy compares with an empty client. With one client fewer, everybody would be dealt anew."""
    data = federation(2, clients=60, records=600)
    emptied = fc.Federation.of([fc.Records.empty(2) if k == 7 else one for k, one in enumerate(data.clients())])
    samples = []
    for held in (data, emptied):
        runtime = Watched(fc.InProcess(held))
        fc.run(METHOD, runtime, PRIVATE, participation=fc.Disjoint(3), randomness=fc.Simulated(4))
        samples.append(runtime.seen)
    assert all((samples[0][step] == samples[1][step]).all() for step in range(3))
    masks = np.array([samples[0][step] for step in range(3)])
    assert (masks.sum(axis=0) == 1).all() and (masks.sum(axis=1) == 20).all()
    fewer = fc.Disjoint(3).members(59, 0, bytes(32))
    assert (np.delete(fc.Disjoint(3).members(60, 0, bytes(32)), 7) != fewer).any()


def test_every_client_is_equally_likely_to_be_in_a_cohort() -> None:
    counts = np.zeros(30)
    for run in range(2000):
        counts += fc.Disjoint(5).members(30, 2, run.to_bytes(32, "big"))
    assert np.abs(counts - 400).max() < 5 * np.sqrt(2000 * 0.2 * 0.8)
