"""The parts of the protocol, each on its own."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, hypergeom
from tests.examples import examples

from fedcalib.errors import InputError, WireError
from fedcalib.secagg import Directory, ProtocolError, SigningIdentity
from fedcalib.secagg.crypto import (
    PRIME,
    KeyPair,
    LagrangeBasis,
    MaskedSum,
    derive,
    digest,
    keystream,
    seal,
    split,
    unseal,
)
from fedcalib.secagg.roster import HashTree, pack, root_of, unpack
from fedcalib.secagg.setup import NeighbourGraph, degree, threshold

# Secret sharing


def test_the_modulus_is_prime():
    """Miller-Rabin with enough bases for a false failure to be out of the question."""
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 66):
        value = pow(base, odd, PRIME)
        squares = [pow(value, 2**i, PRIME) for i in range(twos)]
        assert value == 1 or PRIME - 1 in squares
    assert PRIME > 2**256


SECRETS = st.binary(min_size=32, max_size=32) | st.sampled_from([bytes(32), b"\xff" * 32])


@settings(max_examples=examples(60), deadline=None)
@given(hidden=st.lists(SECRETS, min_size=1, max_size=4), data=st.data())
def test_any_threshold_of_shares_gives_the_secrets_back(hidden, data):
    points = data.draw(st.lists(st.integers(1, 1 << 16), min_size=1, max_size=12, unique=True))
    needed = data.draw(st.integers(1, len(points)))
    shares = dict(zip(points, split(hidden, needed, points), strict=True))
    chosen = data.draw(st.permutations(points))[:needed]
    weights = LagrangeBasis(chosen)
    for at, secret in enumerate(hidden):
        assert weights.secret([shares[point][at] for point in chosen]) == secret


def test_many_secrets_far_out_do_not_touch():
    """The largest coefficients at the largest points: where numbers abreast would run into each other."""
    points = list(range((1 << 16) - 99, 1 << 16))
    hidden = [b"\xff" * 32] * 20
    shares = split(hidden, 67, points)
    weights = LagrangeBasis(points[:67])
    assert [weights.secret([row[at] for row in shares[:67]]) for at in range(20)] == hidden


@settings(max_examples=examples(40), deadline=None)
@given(needed=st.integers(2, 8), value=st.integers(0, 255))
def test_one_share_too_few_gives_nothing(needed, value):
    """The value at zero that threshold - 1 shares suggest is not the secret, but for a chance of 2^-256."""
    secret = bytes([value]) * 32
    points = list(range(1, needed))
    try:
        guess = LagrangeBasis(points).secret([row[0] for row in split([secret], needed, points)])
    except ProtocolError:
        return  # the guess was one of the few field elements beyond 32 bytes
    assert guess != secret


def test_one_share_is_uniform():
    """Bytes of single shares of one and the same secret pass the chi-square that the secret itself would fail."""
    shares = b"".join(split([bytes(32)], 2, [1])[0][0][:32] for _ in range(1000))
    counts = np.bincount(np.frombuffer(shares, np.uint8), minlength=256)
    statistic = float(((counts - 125) ** 2 / 125).sum())
    assert chi2.ppf(1e-9, 255) < statistic < chi2.isf(1e-9, 255)


def test_shares_are_fresh_each_time():
    row, other = split([bytes(32), bytes(32)], 2, [1]), split([bytes(32), bytes(32)], 2, [1])
    assert len({*row[0], *other[0]}) == 4


def test_wrong_points_and_foreign_shares_are_refused():
    with pytest.raises(ProtocolError, match="two of the same"):
        LagrangeBasis([1, 1])
    with pytest.raises(ProtocolError, match="two of the same"):
        LagrangeBasis([0, 1])
    with pytest.raises(ProtocolError, match="do not belong together"):
        LagrangeBasis([1]).secret([(2**256).to_bytes(33, "little")])


# Masks


@given(st.integers(1, 20_000), st.integers(0, 2**64 - 1))
@settings(max_examples=examples(25), deadline=None)
def test_masks_come_off_as_they_went_on(length, value):
    words = np.full(length, value, np.uint64)
    total = MaskedSum(words)
    total.add(b"a" * 32)
    total.add_pair_mask(b"b" * 32, 1, 2)
    total.add_pair_mask(b"b" * 32, 2, 1)
    total.add_pair_mask(b"c" * 32, 5, 2)
    total.subtract_pair_mask(b"c" * 32, 5, 2)
    np.testing.assert_array_equal(total.words, words + keystream(b"a" * 32, length))
    total.subtract(b"a" * 32)
    np.testing.assert_array_equal(total.words, words)


def test_a_keystream_does_not_depend_on_how_long_it_is():
    np.testing.assert_array_equal(keystream(b"k" * 32, 30_000)[:100], keystream(b"k" * 32, 100))


def test_the_keystream_is_chacha20():
    """RFC 8439, appendix A.1, first vector: key and nonce of zeros, block 0."""
    block = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert keystream(bytes(32), 4).astype("<u8").tobytes() == block


# Keys and hashes


def test_both_sides_agree_on_a_key():
    one, other = KeyPair(), KeyPair()
    assert one.agree(other.public) == other.agree(one.public)
    assert KeyPair(one.private).public == one.public
    with pytest.raises(ProtocolError, match="degenerate"):
        one.agree(bytes(32))


def test_sealed_texts_open_only_at_their_place_and_key():
    key = derive(b"s" * 32, "test")
    box = seal(key, 3, b"text")
    assert unseal(key, 3, box) == b"text"
    for attempt in ((key, 4, box), (derive(b"s" * 32, "other"), 3, box), (key, 3, box[:-1] + bytes([box[-1] ^ 1]))):
        with pytest.raises(ProtocolError, match="do not open"):
            unseal(*attempt)


def test_hashes_tell_apart_what_looks_alike():
    alike = [("a", b"bc"), ("a", b"b", b"c"), ("ab", b"c"), ("a", "bc"), ("a", b"bc", b""), ("a", 0x6362), ("a",)]
    assert len({digest(*parts) for parts in alike}) == len(alike)


# The roster's tree, its graph and its bitmaps


@settings(max_examples=examples(60), deadline=None)
@given(size=st.integers(1, 40), data=st.data())
def test_a_proof_leads_to_the_root_and_to_nothing_else(size, data):
    leaves = [digest("leaf", place) for place in range(size)]
    tree = HashTree(leaves)
    places = sorted(data.draw(st.sets(st.integers(0, size - 1), min_size=1)))
    known = {place: leaves[place] for place in places}
    proof = tree.proof(places)
    assert root_of(size, known, proof) == tree.root
    changed = known | {places[0]: digest("other")}
    assert root_of(size, changed, proof) != tree.root
    with pytest.raises(ProtocolError, match="left over"):
        root_of(size, known, proof + bytes(32))
    if proof:
        with pytest.raises(ProtocolError, match="too few"):
            root_of(size, known, proof[:-32])
    with pytest.raises(ProtocolError, match="whole hashes"):
        root_of(size, known, proof + b"x")


@pytest.mark.parametrize(("size", "k"), [(51, 14), (100, 30), (9, 4), (7, 6), (5, 10)])
def test_the_graph_is_regular_symmetric_and_connected(size, k):
    graph = NeighbourGraph(size, k, b"r" * 32)
    around = [set(graph.neighbourhood(place)) for place in range(size)]
    for place in range(size):
        assert place in around[place]
        assert len(around[place]) == min(k, size - 1) + 1
        assert all(place in around[other] for other in around[place])
    reached, frontier = {0}, {0}
    while frontier:
        frontier = set().union(*(around[place] for place in frontier)) - reached
        reached |= frontier
    assert len(reached) == size


def test_the_graph_follows_from_the_roster_alone():
    same = [NeighbourGraph(60, 18, b"r" * 32).neighbourhood(place) for place in range(60)]
    assert same == [NeighbourGraph(60, 18, b"r" * 32).neighbourhood(place) for place in range(60)]
    assert same != [NeighbourGraph(60, 18, b"q" * 32).neighbourhood(place) for place in range(60)]


def test_up_to_fifty_everyone_is_a_neighbour_and_beyond_the_degree_grows_slowly():
    quorum = Fraction(2, 3)
    assert [degree(n, quorum) for n in (3, 10, 50)] == [2, 9, 49]
    sizes = [51, 100, 200, 400, 800, 1600, 3200, 6400]
    degrees = [degree(n, quorum) for n in sizes]
    assert all(k % 2 == 0 and k < n - 1 for k, n in zip(degrees, sizes, strict=True))
    # Doubling the clients adds a bounded number of neighbours: that is what logarithmic means.
    assert all(after - before <= 12 for before, after in itertools.pairwise(degrees))
    assert degrees[-1] < 80


@pytest.mark.parametrize("quorum", [Fraction(2, 3), Fraction(1, 2)])
@pytest.mark.parametrize("clients", [51, 100, 500, 2000])
def test_the_degree_is_the_least_that_keeps_its_promises(clients, quorum):
    """A fifth corrupt hold a threshold of a neighbourhood never, a tenth dropping break one rarely."""

    def kept(k):
        needed = threshold(quorum, k + 1)
        held = hypergeom.sf(needed - 1, clients - 1, clients // 5, k)
        broken = hypergeom.sf(k - needed, clients - 1, clients // 10, k)
        return clients * held <= 2.0**-40 and clients * broken <= 2.0**-10

    k = degree(clients, quorum)
    assert kept(k)
    assert not any(kept(fewer) for fewer in range(2, k, 2))


@pytest.mark.parametrize(("quorum", "sites", "needed"), [("1/2", 3, 2), ("1/2", 4, 3), ("2/3", 3, 3), ("2/3", 10, 7)])
def test_a_threshold_is_more_than_the_quorum(quorum, sites, needed):
    assert threshold(Fraction(quorum), sites) == needed


@given(st.integers(1, 70), st.data())
def test_bitmaps_carry_sets(size, data):
    places = data.draw(st.sets(st.integers(0, size - 1)))
    assert unpack(pack(places, size), size) == places


def test_bitmaps_of_other_rosters_are_refused():
    with pytest.raises(WireError, match="2 bytes for 9 sites, found 1"):
        unpack(b"\x01", 9)
    with pytest.raises(WireError, match="bits beyond"):
        unpack(b"\x00\x02", 9)


# Identities


def test_a_directory_survives_its_file_and_refuses_a_broken_one():
    directory = Directory({name: SigningIdentity(name).public for name in ("b", "a")})
    assert Directory.from_json(directory.to_json()) == directory
    for text in ("", "[]", "3", '{"a": 1}', '{"a": "!"}', '{"a": "AAAA"}', "[" * 100_000):
        with pytest.raises(InputError):
            Directory.from_json(text)
    with pytest.raises(InputError, match="two sites share"):
        Directory({"a": bytes(32), "b": bytes(32)})


def test_identities_sign_for_their_name_only():
    one, other = SigningIdentity("one"), SigningIdentity("other")
    directory = Directory({"one": one.public, "other": other.public})
    directory.verify("one", b"statement", one.sign(b"statement"))
    assert SigningIdentity("one", one.private).public == one.public
    for name, statement, signature in (
        ("other", b"statement", one.sign(b"statement")),
        ("one", b"another", one.sign(b"statement")),
        ("nobody", b"statement", one.sign(b"statement")),
    ):
        with pytest.raises(ProtocolError):
            directory.verify(name, statement, signature)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\ud800"])
def test_names_are_printable_and_short(name):
    with pytest.raises(InputError, match="printable name"):
        SigningIdentity(name)


def test_keys_of_the_wrong_size_are_refused():
    with pytest.raises(InputError, match="32 bytes"):
        SigningIdentity("a", b"short")
    with pytest.raises(InputError, match="32 bytes"):
        Directory({"a": b"short"})
