"""Runtimes beside the in-process one, and several methods in one conversation."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedcalib as fc
from fedcalib.errors import InputError, TranscriptError
from tests.contract.subjects import federation

METHOD = fc.OneShotTemperature(refinements=2)
PRIVACY = fc.DistributedDP(epsilon=1.0)


def test_a_transcript_alone_rebuilds_the_artifact(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    done = fc.run(METHOD, fc.InProcess(federation(4)), PRIVACY, transcript=path)
    again = fc.run(METHOD, fc.Replay(path), PRIVACY, transcript=path)
    assert again.artifact == done.artifact
    assert again.privacy == done.privacy


def test_an_unfinished_transcript_cannot_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    fc.run(METHOD, fc.InProcess(federation(4)), PRIVACY, transcript=path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    with pytest.raises(TranscriptError, match="not finished"):
        fc.run(METHOD, fc.Replay(path), PRIVACY, transcript=path)
    with pytest.raises(TranscriptError, match="found none"):
        fc.run(METHOD, fc.Replay(tmp_path / "nothing.jsonl"), PRIVACY)


def test_methods_together_equal_methods_alone() -> None:
    methods = (fc.FedBin(), fc.OneShotTemperature(refinements=2), fc.AccT(search=fc.search.Bisection(4)))
    data = fc.InProcess(federation(4))
    together = fc.run(fc.methods.Together(methods), data, fc.SecAgg())
    assert together.artifact == tuple(fc.run(method, data, fc.SecAgg()).artifact for method in methods)
    assert len(together.plan.queries) == 4  # as many messages as the longest conversation alone


def test_methods_together_share_one_budget() -> None:
    pair = fc.methods.Together((fc.methods.SourceBinning(), fc.methods.SourceBinning()))
    one = fc.method.Plan.of(fc.methods.SourceBinning(), fc.Schema(3, 9))
    two = fc.method.Plan.of(pair, fc.Schema(3, 9))
    everyone, privacy = fc.Everyone(), fc.DistributedDP(1.0)
    cohort = everyone.cohort(9)
    alone = privacy.mechanism(one.queries[0], one, cohort, everyone)
    shared = privacy.mechanism(two.queries[0], two, cohort, everyone)
    assert shared.widths["0.counts"] == 2 * alone.widths["counts"]
    assert shared.event(two.queries[0], cohort).epsilon == pytest.approx(1.0)


def test_nothing_together_is_refused() -> None:
    with pytest.raises(InputError, match="at least one"):
        fc.methods.Together(())
