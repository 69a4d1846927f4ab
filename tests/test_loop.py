"""The loop: what is asked, what is recalled, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import final

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import wire
from fedcalib.errors import InputError, PlanError, TooFewClients, TranscriptError
from fedcalib.loop import Progress, Runtime, Step, Total
from fedcalib.queries.class_tables import LabelCounts
from tests.contract.subjects import federation

METHOD = fc.OneShotTemperature(refinements=3)
PRIVACY = fc.DistributedDP(epsilon=1.0)


@final
@dataclass(eq=False)
class Counting(Runtime):
    """Counts how often anybody is asked, and can die before or after a step."""

    inner: Runtime
    dies_after: int | None = None
    asked: list[int] = field(default_factory=list)

    @property
    def schema(self) -> fc.Schema:
        return self.inner.schema

    def total(self, step: Step) -> Total:
        if self.dies_after is not None and step.index >= self.dies_after:
            raise KeyboardInterrupt
        self.asked.append(step.index)
        return self.inner.total(step)


@pytest.mark.parametrize("dies_after", [0, 1, 2, 3])
def test_a_killed_run_resumes_without_asking_anybody_twice(tmp_path: Path, dies_after: int) -> None:
    path = tmp_path / "state" / "run.jsonl"
    data = fc.InProcess(federation(4))
    first = Counting(data, dies_after)
    with pytest.raises(KeyboardInterrupt):
        fc.run(METHOD, first, PRIVACY, transcript=path)
    second = Counting(data)
    resumed = fc.run(METHOD, second, PRIVACY, transcript=path)
    assert first.asked + second.asked == [0, 1, 2, 3]
    third = Counting(data)
    again = fc.run(METHOD, third, PRIVACY, transcript=path)
    assert third.asked == []
    assert again.artifact == resumed.artifact


def test_a_process_killed_between_queries_resumes(tmp_path: Path) -> None:
    """A real kill: the process exits the hard way as soon as the second answer is on disk."""
    script = """
import os, sys
import fedcalib as fc
def watch(progress):
    if progress.step == 2:
        os._exit(9)
    print("recalled" if progress.recalled else "asked", flush=True)
data = fc.Federation.iid(fc.Records.of_scores([0.1, 0.4, 0.8] * 10, [0, 1, 1] * 10), 4, seed=0)
fc.run(fc.OneShotTemperature(refinements=3), fc.InProcess(data), fc.DistributedDP(epsilon=1.0),
       transcript=sys.argv[1], watch=watch)
"""
    path = tmp_path / "run.jsonl"
    env = {**os.environ, "PYTHONPATH": str(Path(fc.__file__).parents[1])}
    command = [sys.executable, "-c", script, str(path)]
    killed = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert killed.returncode == 9
    assert killed.stdout.split() == ["asked", "asked"]

    def go() -> tuple[list[str], object]:
        """What this process does, which knows of the killed one only what is on disk."""
        seen: list[str] = []
        data = fc.Federation.iid(fc.Records.of_scores([0.1, 0.4, 0.8] * 10, [0, 1, 1] * 10), 4, seed=0)

        def watch(progress: Progress) -> None:
            seen.append("recalled" if progress.recalled else "asked")

        result = fc.run(METHOD, fc.InProcess(data), PRIVACY, transcript=path, watch=watch)
        return seen, result.artifact

    seen, resumed = go()
    assert seen == ["recalled", "recalled", "asked", "asked"]
    assert go() == (["recalled"] * 4, resumed)


def test_a_torn_last_line_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    data = fc.InProcess(federation(4))
    done = fc.run(METHOD, data, PRIVACY, transcript=path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    runtime = Counting(data)
    again = fc.run(METHOD, runtime, PRIVACY, transcript=path)
    assert runtime.asked == [3]
    assert [json.loads(line)["state"] for line in path.read_text().splitlines()].count("asked") == 5
    assert isinstance(again.artifact, type(done.artifact))


def test_a_changed_setting_stops_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    data = fc.InProcess(federation(4))
    fc.run(METHOD, data, PRIVACY, transcript=path)
    with pytest.raises(TranscriptError, match="another method"):
        fc.run(replace(METHOD, points=9), data, PRIVACY, transcript=path)
    with pytest.raises(TranscriptError, match="another privacy"):
        fc.run(METHOD, data, fc.DistributedDP(epsilon=2.0), transcript=path)


def test_a_damaged_transcript_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("no json\n")
    with pytest.raises(TranscriptError, match="line 1"):
        fc.run(METHOD, fc.InProcess(federation(4)), PRIVACY, transcript=path)


def test_transcripts_are_private(tmp_path: Path) -> None:
    path = tmp_path / "state" / "run.jsonl"
    fc.run(METHOD, fc.InProcess(federation(4)), PRIVACY, transcript=path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_long_vectors_live_beside_the_transcript(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    data = fc.InProcess(federation(2))
    method = fc.FedBin(bins=1 << 16)
    done = fc.run(method, data, fc.SecAgg(), transcript=path)
    assert path.stat().st_size < 10_000
    runtime = Counting(data)
    assert fc.run(method, runtime, fc.SecAgg(), transcript=path).artifact == done.artifact
    assert runtime.asked == []
    beside = path.with_suffix(".0.value.npy")
    beside.write_bytes(beside.read_bytes()[:-8] + b"12345678")
    with pytest.raises(TranscriptError, match="missing or changed"):
        fc.run(method, data, fc.SecAgg(), transcript=path)


def test_asked_is_on_disk_before_anybody_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    @final
    @dataclass(eq=False)
    class Looking(Runtime):
        inner: Runtime

        @property
        def schema(self) -> fc.Schema:
            return self.inner.schema

        def total(self, step: Step) -> Total:
            last = json.loads(path.read_text().splitlines()[-1])
            assert (last["state"], last["step"]) == ("asked", step.index)
            return self.inner.total(step)

    fc.run(METHOD, Looking(fc.InProcess(federation(4))), PRIVACY, transcript=path)


def test_simulation_is_marked_and_repeatable() -> None:
    data = fc.InProcess(federation(4))
    one, two = (fc.run(METHOD, data, PRIVACY, randomness=fc.Simulated(3)) for _ in range(2))
    assert one.artifact == two.artifact
    assert one.privacy.simulation
    assert "not private" in one.privacy.statement
    other = fc.run(METHOD, data, PRIVACY, randomness=fc.Simulated(4))
    assert other.artifact != one.artifact
    real = fc.run(METHOD, data, PRIVACY)
    assert not real.privacy.simulation


def test_repeated_queries_get_fresh_noise() -> None:
    """Noise is drawn per step, never per query: the same question twice must not get the same noise."""
    data = federation(4)

    @final
    @dataclass(frozen=True)
    class Twice(fc.Method[tuple[fc.query.Answer, fc.query.Answer]]):
        def protocol(self, schema: fc.Schema) -> fc.method.Flow[tuple[fc.query.Answer, fc.query.Answer]]:
            one = yield LabelCounts(schema.classes)
            two = yield LabelCounts(schema.classes)
            return one, two

    one, two = fc.run(Twice(), fc.InProcess(data), fc.DistributedDP(0.1), randomness=fc.Simulated(0)).artifact
    assert one["labels"].tolist() != two["labels"].tolist()


def test_a_method_that_changes_its_plan_is_stopped() -> None:
    @final
    @dataclass(frozen=True)
    class Fickle(fc.Method[None]):
        def protocol(self, schema: fc.Schema) -> fc.method.Flow[None]:
            answer = yield LabelCounts(schema.classes)
            if answer["labels"].sum() > 0:
                yield LabelCounts(schema.classes)

    with pytest.raises(PlanError, match="one more"):
        fc.run(Fickle(), fc.InProcess(federation(4)), fc.Open())


def test_small_cohorts_are_refused() -> None:
    two = federation(4, clients=2)
    with pytest.raises(TooFewClients, match="at least 3 clients"):
        fc.run(fc.FedBin(), fc.InProcess(two), fc.SecAgg())
    with pytest.raises(TooFewClients, match="at least 11 records"):
        fc.run(fc.FedBin(), fc.InProcess(federation(4, records=10)), fc.SecAgg())
    assert fc.run(fc.FedBin(), fc.InProcess(two), fc.Open()).artifact is not None


def test_disjoint_cohorts_count_each_client_once() -> None:
    data = federation(4, clients=30, records=900)

    @final
    @dataclass(frozen=True)
    class Counts(fc.Method[float]):
        def protocol(self, schema: fc.Schema) -> fc.method.Flow[float]:
            total = 0.0
            for _ in range(5):
                answer = yield LabelCounts(schema.classes)
                total += float(answer["labels"].sum())
            return total

    result = fc.run(Counts(), fc.InProcess(data), fc.SecAgg(), participation=fc.Disjoint(5))
    assert result.artifact == 900


def test_poisson_participation_draws_the_rate() -> None:
    drawn = fc.Poisson(0.3)
    secret = bytes(32)
    shares = [drawn.members(1000, step, secret).mean() for step in range(20)]
    assert abs(np.mean(shares) - 0.3) < 0.02
    assert (drawn.members(1000, 1, secret) == drawn.members(1000, 1, secret)).all()
    assert (drawn.members(1000, 1, secret) != drawn.members(1000, 2, secret)).any()
    assert (drawn.members(1000, 1, secret) != drawn.members(1000, 1, bytes([1] * 32))).any()
    assert fc.Poisson(1.0).members(1000, 1, secret).all()
    with pytest.raises(InputError, match="secret of at least 32 bytes"):
        drawn.members(1000, 1, b"short")


@pytest.mark.parametrize("drawn", [fc.Poisson(0.3), fc.Disjoint(5)], ids=repr)
def test_a_seed_decides_which_clients_a_simulation_draws(drawn: fc.Poisson | fc.Disjoint) -> None:
    runtime = fc.InProcess(federation(4, clients=30, records=900))

    def binned(seed: int) -> fc.Calibrator:
        source = fc.Simulated(seed)
        return fc.run(fc.FedBin(bins=4), runtime, fc.Open(), participation=drawn, randomness=source).artifact

    assert binned(1) == binned(1)
    assert binned(1) != binned(2)  # exact answers: only the clients can differ


def test_progress_is_watched() -> None:
    seen: list[Progress] = []
    fc.run(METHOD, fc.InProcess(federation(4)), fc.Open(), watch=seen.append)
    assert [(p.step, p.steps, p.recalled) for p in seen] == [(k, 4, False) for k in range(4)]


def test_results_count_bytes() -> None:
    result = fc.run(fc.FedBin(bins=128), fc.InProcess(federation(4)), fc.Open())
    assert result.bytes_per_client == 8 * 2 * 4 * 128
    assert wire.fingerprint(result.plan.queries[0]) == wire.fingerprint(result.plan.queries[0])
