"""A hostile server against one site: generated requests that are valid, mutated or chosen to hurt.

Each request goes to three sites with the same keys and policy: one with records, one with a record more (an odd one),
and one without any. Under a privacy model with an epsilon their replies have the same kind, the same word and the same
length, so all that a server can learn is in the noisy numbers; and their noise is as wide as it was priced. Whatever is
sent, replies are typed, work and memory are bounded and the year's limit holds.

`make test` sends 1,000 requests, `make fuzz` 100,000 (FEDCALIB_FUZZ says how many, and measures seconds as well).
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import sinh
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.calibrator import Chain
from fedcalib.artifacts.scaling import MatrixScaling, Temperature, VectorScaling
from fedcalib.cohort import Cohort
from fedcalib.errors import FedcalibError
from fedcalib.families.affine import TemperatureFamily, VectorFamily
from fedcalib.loop import Outline
from fedcalib.methods.domain_shift import DomainGaps
from fedcalib.privacy.source_laplace import LaplaceTerms
from fedcalib.queries import class_tables, moments, reliability, scaling, scores, shift, temperature, wrapped
from fedcalib.query import Join, Query
from fedcalib.remote.journal import DiskJournal
from fedcalib.remote.policy import Policy
from fedcalib.remote.protocol import ACTIONS, PROTOCOL, REASONS, Question, Share, read, read_reply, write
from fedcalib.remote.site import Site
from fedcalib.secagg import Directory, SetupPlan, SigningIdentity, Slot
from tests.remote.places import unchecked
from tests.remote.test_fuzz import mutated

SOAK = "FEDCALIB_FUZZ" in os.environ
COUNT = min(int(os.environ.get("FEDCALIB_FUZZ", "1000")), 100_000)
EPOCH = 2000  # requests before everybody starts anew, so that the budget does not stay exhausted
POLICY = Policy(epsilon_a_query=0.5, epsilon_a_run=0.5, epsilon_a_year=20.0)
GIBIBYTE = 1 << 30
CLASSES = 3


def records(count: int, odd: bool = False) -> fc.Records:
    rng = np.random.default_rng(5)
    logits, labels = 3 * rng.normal(size=(count, CLASSES)), rng.integers(0, 2, count)
    if odd:  # a rare class, and scores beyond anything else
        logits, labels = np.append(logits, [[1e308, -1e308, 0.0]], axis=0), np.append(labels, 2)
    rival = np.where(np.arange(len(labels)) < count, 0.5, 1e308)
    return fc.Records.of_logits(logits, labels, rival=rival, domain=rival)


SITES = {"full": records(400), "one more": records(400, odd=True), "empty": records(400).take(slice(0, 0))}

Chance = random.Random
SIZES = [1, 2, 3, 4, 7, 64, 1000, 1 << 16, 1 << 20, (1 << 20) + 1, 1 << 40]
REALS = [1.0, 0.5, 2.0, 1e-12, 1e-3, 30.0, 1e6, 1e11, 1e300, 5e-324]
EPSILONS = [0.05, 0.1, 0.3, 0.5, 1e-3, 1e-6, 1e-9, 1e-15, 5e-324, 1.0, 1e6]


def size(chance: Chance) -> int:
    return chance.choice(SIZES[:6] if chance.random() < 0.8 else SIZES)


def real(chance: Chance) -> float:
    return chance.choice(REALS[:3] if chance.random() < 0.7 else REALS)


def reals(chance: Chance) -> tuple[float, ...]:
    count = chance.choice([1, 2, 5, 40] if chance.random() < 0.9 else [5000])
    return tuple(sorted({real(chance) * (1 + k / count) for k in range(count)}))


QUERIES: list[Callable[[Chance], Query]] = [
    lambda c: class_tables.LabelCounts(size(c)),
    lambda c: class_tables.LabelHistogram(size(c), size(c)),
    lambda c: class_tables.LogitResiduals(size(c), size(c), real(c), weight=real(c)),
    lambda c: class_tables.ClassCurvature(size(c), size(c), real(c)),
    lambda c: reliability.TopLabelTable(size(c)),
    lambda c: reliability.Hits(),
    lambda c: reliability.ScoreGaps(size(c)),
    lambda c: reliability.ClasswiseResiduals(size(c), size(c)),
    lambda c: reliability.Losses(real(c)),
    lambda c: reliability.OwnErrors(size(c), size(c)),
    lambda c: scores.ScoreTree(size(c), size(c), share=real(c)),
    lambda c: scores.ScoreLeaves(size(c), c.choice(["", "rival"])),
    lambda c: scores.PairedBuckets((0.5,), (0.5,), size(c)),
    lambda c: shift.Confidence(),
    lambda c: shift.Predictions(size(c)),
    lambda c: shift.ConfusionCounts(size(c)),
    lambda c: shift.ConfidenceGaps(reals(c)),
    lambda c: shift.BinnedGaps(reals(c), size(c)),
    lambda c: shift.ClippedLosses(reals(c), real(c)),
    lambda c: DomainGaps(reals(c), size(c)),
    lambda c: temperature.TemperatureCurve(reals(c), real(c), weight=real(c)),
    lambda c: temperature.TemperatureSlope(real(c), real(c), size(c), weight=real(c)),
    lambda c: temperature.TemperatureScores(reals(c), real(c), real(c)),
    lambda c: scaling.LocalFit(TemperatureFamily(), (real(c),), real(c), real(c), size(c)),
    lambda c: scaling.ScalingGradient(VectorFamily(), (1.0,) * 6, real(c)),
    lambda c: moments.ClassMoments(size(c), size(c), real(c)),
    lambda c: wrapped.Calibrated(query(c), calibrator(c)),
    lambda c: wrapped.Clipped(query(c), real(c)),
    lambda c: wrapped.NormHistogram(query(c), reals(c)),
    lambda c: Join(tuple(query(c) for _ in range(c.choice([1, 2, 3, 50])))),
]


def query(chance: Chance) -> Query:
    while True:
        try:
            return chance.choice(QUERIES)(chance)
        except FedcalibError:
            continue


def calibrator(chance: Chance) -> object:
    numbers = tuple(real(chance) * chance.choice([1, -1]) for _ in range(2 * CLASSES))
    made = [
        lambda: Temperature(real(chance)),
        lambda: VectorScaling(numbers[:CLASSES], numbers[CLASSES:]),
        lambda: MatrixScaling((numbers[:CLASSES],) * CLASSES, numbers[CLASSES:]),
        lambda: Chain((Temperature(real(chance)), VectorScaling(numbers[:2], numbers[2:4]))),
    ]
    return chance.choice(made)()


def privacy(chance: Chance) -> fc.privacy.Privacy:
    epsilon = chance.choice(EPSILONS[:4] if chance.random() < 0.7 else EPSILONS)
    made = [
        lambda: unchecked(fc.SourceLaplace, epsilon),
        lambda: unchecked(fc.SourceLaplace, epsilon),
        lambda: unchecked(fc.LocalDP, epsilon),
        lambda: unchecked(fc.DistributedDP, epsilon, 0.0, chance.choice([0, 0, 1, -1, 1 << 40])),
        lambda: unchecked(fc.DistributedDP, epsilon, chance.choice([1e-6, 1e-300, 0.5])),
        lambda: unchecked(fc.UserGaussian, epsilon, 1e-5, real(chance)),
        lambda: unchecked(fc.SecAgg, chance.choice([1, 24, 40, 1 << 20])),
        fc.Open,
    ]
    return chance.choice(made)()


def outline(run: str, chance: Chance) -> Outline:
    queries = tuple(query(chance) for _ in range(chance.choice([1, 1, 1, 2, 20])))
    cohort = Cohort(3.0, 1.0, 3)
    if chance.random() < 0.2:
        floor = chance.choice([3, 5, 1, 0, 1 << 20, 1 << 33])
        rates = [1.0, 1.0, 0.5, 0.0]
        cohort = unchecked(Cohort, chance.choice([float(floor), 3.0, 0.0]), chance.choice(rates), floor)
    turns = [fc.Everyone(), fc.Everyone(0.5), fc.Poisson(0.5), fc.Disjoint(2), fc.Disjoint(1 << 20)]
    return Outline(run, queries, privacy(chance), cohort, chance.choice(turns))


@dataclass
class Hostile:
    """The server: what it sends, and what it notes of the replies."""

    chance: Chance
    begun: list[Outline] = field(default_factory=list)
    agreed: list[Outline] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)
    seen: Counter = field(default_factory=Counter)
    noise: list[float] = field(default_factory=list)
    seconds: float = 0.0
    most: int = 0  # bytes that one request has taken, at most

    def request(self, number: int) -> tuple[str, str]:
        kind = self.chance.random()
        if kind < 0.2 and self.sent:
            action, text = self.chance.choice(self.sent[-50:])
            action = self.chance.choice(ACTIONS) if self.chance.random() < 0.2 else action
            return action, mutated(text, self.chance)
        if kind < 0.6 or not self.begun:
            made = outline(f"run-{number}", self.chance)
            self.begun.append(made)
            text = _begin(made, self.chance)
            greets = self.chance.random() < 0.1
            self.sent.append(("hello", _greeting(text)) if greets else ("begin", text))
        else:
            self.sent.append(("ask", self._question()))
        return self.sent[-1]

    def _question(self) -> str:
        made = self.chance.choice(self.agreed[-6:] if self.agreed and self.chance.random() < 0.9 else self.begun[-4:])
        step = self.chance.randrange(len(made.queries))
        asked = made.queries[step]
        if self.chance.random() < 0.2:  # another query, perhaps with the same blocks
            asked = (
                wrapped.Calibrated(asked, calibrator(self.chance)) if self.chance.random() < 0.7 else query(self.chance)
            )
        members = self.chance.choice([(), (), (), (0,), (1,), (-1,), (0, 0), tuple(range(1000))])
        return write(Question(made.run, step, self.chance.choice([0, 0, 1, 9]), asked, members, ""))


def _begin(made: Outline, chance: Chance) -> str:
    """An outline, written field by field, since a server is not bound to make it from valid parts."""
    terms = ""
    if chance.random() < 0.3:
        slots = tuple(Slot(step, 0, _length(one) % (1 << 20) + 1) for step, one in enumerate(made.queries))
        terms = SetupPlan(made.run, slots, 0, floor=3).to_json()
    fields = {"outline": wire.encode(made), "terms": terms}
    return json.dumps({"type": "Begin", "fields": fields})


def _length(asked: fc.query.Query) -> int:
    """The length of an answer; 1 for a query of huge numbers, whose blocks a server need not list to ask it."""
    numbers = map(int, re.findall(r"\d{1,18}", wire.dumps(asked)))
    return max(asked.size, 1) if max(numbers, default=0) <= 10_000 else 1


def _greeting(begin: str) -> str:
    """A greeting that asks for the keys of a run."""
    fields = {"protocol": PROTOCOL, "version": "", "classes": 2, "begin": json.loads(begin)}
    return json.dumps({"type": "Greeting", "fields": fields})


def sites(folder: Path) -> dict[str, Site]:
    identity = SigningIdentity("north")
    directory = Directory({one.name: one.public for one in (identity, SigningIdentity("south"))})
    return {
        name: Site(identity, directory, fc.Federation.of([held]), POLICY, DiskJournal(folder / name))
        for name, held in SITES.items()
    }


def kind(reply: str) -> str:
    message = wire.parse(reply)
    return message["fields"]["reason"] if message["type"] == "Refused" else message["type"]


def noise_of(made: Outline, asked: Question, share: Share, site: Site) -> list[float]:
    """The noise in a share of discrete Laplace noise, in units of the mean that its price promises."""
    mechanism = made.mechanisms[asked.step]
    if not isinstance(mechanism, LaplaceTerms) or site.journal.log.lines()[-1].get("empty"):
        return []
    held = site.federation
    with np.errstate(all="ignore"):  # as mechanisms do: warnings would depend on records
        total = asked.query.total(held, fc.Secure(), asked.query.spread(mechanism.scales))
    mean = asked.query.spread({name: 1 / sinh(1 / width) for name, width in mechanism.widths.items() if width < 1e15})
    found = np.abs(share.value - total) / mean
    return found[:50].tolist()


def test_a_hostile_server_learns_nothing_but_noisy_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # what a crash would lose is tested elsewhere
    server = Hostile(Chance(20))
    fc.Secure().discrete_laplace(1.0, 1)  # the library of noise is loaded once per process
    for start in range(0, COUNT, EPOCH):
        folder = Path(mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        try:
            epoch(server, sites(folder), range(start, min(start + EPOCH, COUNT)))
        finally:
            shutil.rmtree(folder)
    assert set(server.seen) <= {*REASONS, "Agreed", "Share", "Relay", "Introduction"}
    for word in ("Agreed", "Share", "malformed", "mechanism", "epsilon", "work", "query", "protocol"):
        assert server.seen[word] > COUNT / 1000, server.seen
    assert len(server.noise) > COUNT / 20
    assert np.mean(server.noise) == pytest.approx(1.0, abs=6 / len(server.noise) ** 0.5)
    if SOAK:
        print(f"\n{COUNT} requests: {dict(server.seen)}; slowest {server.seconds:.2f} s; {server.most >> 20} MiB")
        assert server.most < GIBIBYTE
        assert server.seconds < 2.0


def epoch(server: Hostile, everybody: dict[str, Site], numbers: range) -> None:
    for kept in (server.begun, server.agreed, server.sent):
        kept.clear()
    released: dict[str, float] = {}
    for number in numbers:
        action, text = server.request(number)
        replies = {name: measured(server, site, action, text) for name, site in everybody.items()}
        kinds = {name: kind(reply) for name, reply in replies.items()}
        assert len(set(kinds.values())) == 1, (action, text[:2000], kinds)
        assert kinds["full"] != "failed", (text[:2000], everybody["full"].journal.log.lines()[-1])
        assert len({len(reply) for reply in replies.values()}) == 1, (action, text[:2000], kinds)
        server.seen[kinds["full"]] += 1
        if (kinds["full"], action) == ("Agreed", "begin") and server.begun[-1].run == f"run-{number}":
            server.agreed.append(server.begun[-1])
        if kinds["full"] == "Share":
            asked = read(text, Question)
            made = next((one for one in server.begun if one.run == asked.run), None)
            if made is not None:
                share = read_reply(replies["full"], Share)
                assert isinstance(share, Share)
                if made.run not in released:
                    server.noise += noise_of(made, asked, share, everybody["full"])
                released[made.run] = made.privacy.epsilon  # type: ignore[attr-defined]
        if number % 100 == 0:
            check_ledgers(everybody, released)
    check_ledgers(everybody, released)


def check_ledgers(everybody: dict[str, Site], released: dict[str, float]) -> None:
    for site in everybody.values():
        ledger = site.journal.ledger
        spent = sum(float(one.epsilon) for one in ledger.accounts()) if Path(ledger.path).exists() else 0.0
        assert sum(released.values()) <= spent + 1e-6
        assert spent <= POLICY.epsilon_a_year + 1e-9


def measured(server: Hostile, site: Site, action: str, text: str) -> str:
    """The reply; memory is counted by Python in short runs, and by the system in long ones, with the seconds."""
    if SOAK:
        resident = _fresh_peak()
    else:
        tracemalloc.start()
    began = time.process_time()
    try:
        return site.handle(action, text)
    finally:
        server.seconds = max(server.seconds, time.process_time() - began)
        if SOAK:
            server.most = max(server.most, _status("VmHWM") - resident)
        else:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < GIBIBYTE, (action, text[:2000])


def _fresh_peak() -> int:
    """Forget the most memory that this process has held, where that is far more than now; returns the bytes of now."""
    resident = _status("VmRSS")
    if _status("VmHWM") - resident > 1 << 27:  # less is no matter, and forgetting takes time
        Path("/proc/self/clear_refs").write_text("5")
    return resident


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024
