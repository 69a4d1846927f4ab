"""CCVR: the sums are the pooled moments whoever holds what, and what is made of them repairs a skewed head."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedcalib as fc
from fedcalib import wire
from fedcalib.artifacts.gaussians import ClassGaussians
from fedcalib.artifacts.networks import Head, Representation
from fedcalib.errors import InputError
from fedcalib.methods.ccvr import CCVR, ClosedForm, FeatureGaussians, Retrained, Whitening
from fedcalib.queries.moments import ClassMoments, packed, unpacked
from tests.examples import examples
from tests.memory import PRINT_PEAK
from tests.remote.places import remote


def blobs(n: int = 400, classes: int = 3, features: int = 5, seed: int = 0) -> fc.Records:
    """Correlated features around one centre a class; the last class is rare."""
    world, rng = np.random.default_rng(99), np.random.default_rng(seed)
    prior = np.array([0.5, 0.4, 0.1]) if classes == 3 else np.full(classes, 1 / classes)
    labels = rng.choice(classes, n, p=prior)
    mixing = world.normal(size=(features, features)) / 2
    centres = 2 * world.normal(size=(classes, features))
    z = centres[labels] + rng.normal(size=(n, features)) @ mixing
    return fc.Records.of_logits(np.zeros((n, classes)), labels, features=z)


def splits(records: fc.Records) -> list[fc.Federation]:
    """One client, five, skewed ones, and one per record."""
    return [
        fc.Federation.of([records]),
        fc.Federation.iid(records, 5, 1),
        fc.Federation.dirichlet(records, 7, 0.1, 2),
        fc.Federation.grouped(records, np.arange(len(records)), len(records)),
    ]


def check_pooled(found: ClassGaussians, records: fc.Records, tolerance: float) -> None:
    z = records.extra["features"]
    for label in range(records.classes):
        own = z[records.labels == label]
        assert found.counts[label] == len(own)
        np.testing.assert_allclose(found.means[label], own.mean(axis=0), atol=tolerance)
        np.testing.assert_allclose(found.covariances[label], np.cov(own.T), atol=tolerance)


def test_statistics_are_those_of_the_pooled_features_whoever_holds_what() -> None:
    records = blobs()
    for federation in splits(records):
        found = fc.run(FeatureGaussians(5), fc.InProcess(federation), fc.Open()).artifact
        check_pooled(found, records, 1e-10)


@settings(max_examples=examples(40))
@given(st.integers(1, 120), st.sampled_from([0.02, 0.3, 5.0]), st.integers(0, 2**32 - 1))
def test_no_split_of_clients_changes_them(clients: int, evenness: float, seed: int) -> None:
    records, rng = blobs(120, seed=seed), np.random.default_rng(seed)
    owner = rng.choice(clients, 120, p=rng.dirichlet(np.full(clients, evenness)))  # some hold nothing, some one record
    rows = np.concatenate([np.flatnonzero(records.labels == label)[:1] for label in range(3)])
    records = fc.Records.concatenate([records, records.take(rows), records.take(rows)])  # at least two of each class
    owner = np.concatenate([owner, rng.integers(clients, size=len(records) - 120)])
    found = fc.run(
        FeatureGaussians(5), fc.InProcess(fc.Federation.grouped(records, owner, clients)), fc.Open()
    ).artifact
    check_pooled(found, records, 1e-10)


def test_a_public_shift_changes_nothing_but_rounding() -> None:
    rng = np.random.default_rng(3)
    z = 1000 + rng.normal(size=(200, 4))
    records = fc.Records.of_logits(np.zeros((200, 2)), rng.integers(2, size=200), features=z)
    method = FeatureGaussians(4, shift=(1000.0, 1000.0, 1000.0, 1000.0))
    found = fc.run(method, fc.InProcess(fc.Federation.iid(records, 4, 0)), fc.Open()).artifact
    check_pooled(found, records, 1e-10)


def test_secure_sums_agree_with_open_ones_to_the_grid() -> None:
    records = blobs()
    exact = fc.run(FeatureGaussians(5, radius=16.0), fc.InProcess(splits(records)[1]), fc.Open()).artifact
    for federation in splits(records)[1:]:
        secure = fc.run(FeatureGaussians(5, radius=16.0), fc.InProcess(federation), fc.SecAgg(bits=40)).artifact
        np.testing.assert_allclose(secure.covariances, exact.covariances, atol=1e-7)
        np.testing.assert_array_equal(secure.counts, exact.counts)


def test_masked_messages_give_the_same_statistics_to_the_last_bit() -> None:
    """Sites that say nothing but masked text, some with a single record, against one process."""
    records = blobs()
    owner = np.concatenate([np.arange(6), 6 + np.arange(394) % 6])  # six clients of one record, six of many
    federation = fc.Federation.grouped(records, owner, 12)
    method, privacy = FeatureGaussians(5, radius=16.0), fc.SecAgg(bits=40)
    here = fc.run(method, fc.InProcess(federation), privacy).artifact
    there = fc.run(method, remote(federation), privacy).artifact
    np.testing.assert_array_equal(there.covariances, here.covariances)
    np.testing.assert_array_equal(there.means, here.means)
    check_pooled(there, records, 1e-7)


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([0.3, 2.0, 50.0]))
def test_the_fast_sum_is_the_sum_of_the_rows(seed: int, diagonal: bool, radius: float) -> None:
    records = blobs(n=30, seed=seed)
    query = ClassMoments(3, 5, radius, diagonal=diagonal)
    rows = query.rows(records).dense(query.size)
    np.testing.assert_allclose(query.pooled(records), rows.sum(axis=0), atol=1e-12)
    for steps in (2.0**20, 1e5):
        scale = query.spread({"count": 1.0, "sum": 2.0**24, "second": steps})
        assert query.pooled(records, scale).tolist() == np.trunc(rows * scale).sum(axis=0).astype(int).tolist()
    for row in rows:
        for name, part in query.split(row).items():
            bound = query.blocks[name].bound
            assert np.abs(part).sum() <= bound.l1 * (1 + 1e-12)
            assert np.linalg.norm(part) <= bound.l2 * (1 + 1e-12)


def test_client_sums_add_up() -> None:
    federation = fc.Federation.dirichlet(blobs(), 6, 0.3, 0)
    query = ClassMoments(3, 5, 10.0)
    total = np.zeros(query.size)
    clients = 0
    for terms in query.by_client(federation, fc.Simulated(0)):
        np.add.at(total, terms.cell, terms.value)
        clients += terms.clients
    assert clients == 6
    np.testing.assert_allclose(total, query.total(federation, fc.Simulated(0)), rtol=1e-9, atol=1e-9)


def test_packing_keeps_norms_and_comes_back() -> None:
    z = np.random.default_rng(0).normal(size=(6, 6))
    matrix = z + z.T
    assert np.linalg.norm(packed(matrix)) == pytest.approx(np.linalg.norm(matrix))
    np.testing.assert_allclose(unpacked(packed(matrix), 6), matrix)


@pytest.mark.parametrize("privacy", ["Open", "SecAgg"])
def test_sums_run_in_chunks(privacy: str) -> None:
    """20,000 records of 512 features in 10 classes stay below 1 GiB, data included, in the open and on the grid."""
    code = (
        "import numpy as np, fedcalib as fc\n"
        "z = np.random.default_rng(0).random((20000, 512), dtype=np.float32)\n"
        "r = fc.Records.of_logits(np.zeros((20000, 10), np.float32), np.arange(20000) % 10, features=z)\n"
        f"runtime, privacy = fc.InProcess(fc.Federation.iid(r, 10, 0)), fc.{privacy}()\n"
        "found = fc.run(fc.methods.FeatureGaussians(512, radius=32.0), runtime, privacy).artifact\n"
        "own = z[3::10].astype(np.float64); found.counts.tolist() == [2000] * 10 or exit('counts')\n"
        "abs(found.covariances[3] - np.cov(own.T)).max() < 1e-3 or exit('covariance')\n" + PRINT_PEAK
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1024 * 1024


def accuracy(head: Head, records: fc.Records) -> float:
    return float((head.over(records).logits.argmax(axis=1) == records.labels).mean())


@pytest.mark.parametrize("fit", [Retrained(), ClosedForm(), Retrained(balanced=True, samples=200)])
def test_a_biased_head_is_repaired(fit: Retrained | ClosedForm) -> None:
    records, unseen = blobs(2000), blobs(2000, seed=1)
    biased = Head(np.zeros((3, 5)), np.array([0.0, 3.0, 0.0]))
    method = CCVR(5, fit, start=biased)
    repaired = fc.run(method, fc.InProcess(fc.Federation.dirichlet(records, 10, 0.05, 0)), fc.SecAgg()).artifact
    assert accuracy(biased, unseen) < 0.5
    assert accuracy(repaired, unseen) > 0.93


def test_heads_come_back_from_other_axes_as_they_went() -> None:
    z = blobs().extra["features"]
    axes, head = Whitening.of(z), Head(np.arange(15.0).reshape(3, 5), np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(np.cov(axes.along(z).T, bias=True), np.eye(5), atol=1e-9)
    matrix, shift = axes.into(head.matrix, head.shift)
    np.testing.assert_allclose(axes.along(z) @ matrix.T + shift, head.logits(z), atol=1e-9)
    np.testing.assert_allclose(axes.back(matrix, shift)[0], head.matrix, atol=1e-9)
    np.testing.assert_allclose(axes.back(matrix, shift)[1], head.shift, atol=1e-9)
    assert np.isfinite(Whitening.of(np.ones((4, 3))).along(np.ones((2, 3)))).all()


def test_whitened_descent_gets_there_where_features_vary_unequally() -> None:
    scale = np.array([100.0, 10.0, 1.0, 0.1, 0.01])

    def stretched(seed: int) -> fc.Records:
        records = blobs(2000, seed=seed)
        return fc.Records.of_logits(records.given, records.labels, features=records.extra["features"] * scale)

    runtime = fc.InProcess(fc.Federation.dirichlet(stretched(0), 10, 0.05, 0))
    found = fc.run(FeatureGaussians(5, radius=1000.0), runtime, fc.SecAgg(bits=40)).artifact
    unseen = stretched(1)
    white, plain = (Retrained(200, whitened=choice).fit(found, None) for choice in (True, False))
    assert accuracy(white, unseen) > 0.93
    assert accuracy(white, unseen) > accuracy(plain, unseen) + 0.05


def test_the_closed_form_is_the_discriminant_of_scikit_learn() -> None:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    records = blobs(1000)
    found = fc.run(FeatureGaussians(5), fc.InProcess(splits(records)[1]), fc.Open()).artifact
    z = records.extra["features"]
    peer = LinearDiscriminantAnalysis(solver="lsqr").fit(z, records.labels)
    np.testing.assert_allclose(found.closed_form()(z), peer.predict_proba(z), atol=0.01)  # n and n - 1


def test_a_class_that_nobody_holds_keeps_its_row_and_is_told() -> None:
    records = blobs()
    kept = records.take(records.labels != 2)
    start = Head(np.arange(15.0).reshape(3, 5) / 15, np.array([0.0, 0.0, -1.0]))
    runtime = fc.InProcess(fc.Federation.iid(kept, 4, 0))
    head = fc.run(CCVR(5, start=start), runtime, fc.SecAgg()).artifact
    np.testing.assert_allclose(head.matrix[2], start.matrix[2])
    assert head.shift[2] == -1.0
    assert "[2]" in head.warnings[0]
    closed = fc.run(CCVR(5, ClosedForm()), runtime, fc.SecAgg()).artifact
    assert (closed(records.extra["features"]).argmax(axis=1) != 2).all()


def test_one_record_of_a_class_borrows_the_others_covariance() -> None:
    records = blobs()
    rows = np.concatenate([np.flatnonzero(records.labels != 2), np.flatnonzero(records.labels == 2)[:1]])
    found = fc.run(FeatureGaussians(5), fc.InProcess(fc.Federation.iid(records.take(rows), 4, 0)), fc.Open()).artifact
    assert (found.covariances[2] == 0).all()
    assert np.linalg.eigvalsh(found.shrunk().covariances[2]).min() > 0


def test_shrinking_brings_covariances_nearer_the_truth() -> None:
    """Few records, or much noise: the shrunken covariances are nearer the true one than the plain ones."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(20, 20)) * np.linspace(0.1, 2, 20)
    truth = mixing.T @ mixing
    labels = np.repeat(np.arange(3), [15, 40, 2000])
    z = rng.normal(size=(len(labels), 20)) @ mixing + 5 * labels[:, None]
    records = fc.Records.of_logits(np.zeros((len(labels), 3)), labels, features=z)
    runtime = fc.InProcess(fc.Federation.iid(records, 10, 0))
    for privacy, radius in ((fc.SecAgg(), 100.0), (fc.DistributedDP(8.0, 1e-5), 60.0)):
        found = fc.run(FeatureGaussians(20, radius), runtime, privacy, randomness=fc.Simulated(0)).artifact
        shrunk = found.shrunk()
        for plain, better in zip(found.covariances[:2], shrunk.covariances[:2], strict=True):
            assert np.linalg.norm(better - truth) < 0.8 * np.linalg.norm(plain - truth)
        assert np.linalg.eigvalsh(shrunk.covariances).min() > 0


def test_many_exact_records_keep_their_own_covariance() -> None:
    found = fc.run(FeatureGaussians(5), fc.InProcess(splits(blobs(60_000))[1]), fc.Open()).artifact
    stretched = ClassGaussians(
        found.counts, found.means, found.covariances * np.array([1.0, 4.0, 9.0])[:, None, None], found.noise
    )
    np.testing.assert_allclose(stretched.shrunk().covariances, stretched.covariances, atol=0.02)


def test_virtual_features_have_the_moments_they_are_drawn_from() -> None:
    found = fc.run(FeatureGaussians(5), fc.InProcess(splits(blobs(3000))[1]), fc.Open()).artifact.shrunk()
    drawn, labels = found.sample(np.array([20000, 20000, 20000]), np.random.default_rng(0))
    for label in range(3):
        own = drawn[labels == label]
        np.testing.assert_allclose(own.mean(axis=0), found.means[label], atol=0.1)
        np.testing.assert_allclose(np.cov(own.T), found.covariances[label], atol=0.15)


def test_the_class_prior_is_kept_unless_told() -> None:
    """Balanced virtual features tell the head that the rare class is common: probabilities go wrong."""
    records = blobs(6000, seed=1)
    blurred = records.extra["features"] + np.random.default_rng(0).normal(0, 4, (6000, 5))
    near = fc.Records.of_logits(records.given, records.labels, features=blurred)
    runtime = fc.InProcess(fc.Federation.iid(near, 5, 0))
    shares = np.bincount(records.labels) / len(records)
    true = fc.run(CCVR(5, ClosedForm()), runtime, fc.SecAgg()).artifact.over(near).probs.mean(axis=0)
    even = fc.run(CCVR(5, ClosedForm(balanced=True)), runtime, fc.SecAgg()).artifact.over(near).probs.mean(axis=0)
    assert abs(true - shares).max() < 0.02
    assert even[2] > shares[2] + 0.1


@pytest.mark.parametrize(
    "privacy", [fc.DistributedDP(8.0, 1e-5), fc.UserGaussian(8.0, 1e-5, clip=400.0)], ids=["record", "user"]
)
def test_noise_leaves_a_head_that_works(privacy: fc.privacy.Privacy) -> None:
    records, unseen = blobs(6000), blobs(2000, seed=1)
    shape = Representation(unit=True)
    method = CCVR(5, ClosedForm(), radius=1.0, representation=shape)
    runtime = fc.InProcess(fc.Federation.iid(records, 40, 0))
    head = fc.run(method, runtime, privacy, randomness=fc.Simulated(3)).artifact
    assert accuracy(head, unseen) > 0.7


def test_the_power_keeps_signs_and_unit_features_have_length_one() -> None:
    z = np.array([[4.0, -9.0], [0.0, 0.0]])
    np.testing.assert_allclose(Representation(power=0.5).apply(z), [[2.0, -3.0], [0.0, 0.0]])
    np.testing.assert_allclose(np.linalg.norm(Representation(unit=True).apply(z), axis=1), [1.0, 0.0])


def test_the_normalised_head_divides_each_class_by_its_own_length() -> None:
    head = Head(np.array([[3.0, 4.0], [0.0, 2.0]]), np.array([1.0, 1.0])).normalised
    np.testing.assert_allclose(head.matrix, [[0.6, 0.8], [0.0, 1.0]])
    np.testing.assert_allclose(head.logits(np.array([[1.0, 1.0]])), [[1.4, 1.0]])


def test_heads_and_gaussians_survive_the_wire() -> None:
    found = fc.run(FeatureGaussians(5), fc.InProcess(splits(blobs())[1]), fc.Open()).artifact
    again = wire.loads(wire.dumps(found))
    np.testing.assert_array_equal(again.covariances, found.covariances)
    head = wire.loads(wire.dumps(found.closed_form()))
    np.testing.assert_array_equal(head.matrix, found.closed_form().matrix)


def test_missing_features_are_explained() -> None:
    records = fc.Records.of_logits(np.zeros((20, 3)), np.zeros(20, dtype=int))
    with pytest.raises(InputError, match="score the records with the trained network first"):
        fc.run(CCVR(5), fc.InProcess(fc.Federation.iid(records, 4, 0)), fc.SecAgg())
    with pytest.raises(InputError, match="Expected 4 features"):
        fc.run(CCVR(4), fc.InProcess(splits(blobs())[1]), fc.SecAgg())
