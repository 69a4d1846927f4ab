"""What a curious or cheating server does with the messages it sees."""

from __future__ import annotations

from fedcalib.secagg.crypto import SHARE_SIZE, KeyPair, LagrangeBasis, MaskedSum, pair_key, seed_key

VICTIM = 2
VICTIM_NAME = "site-002"


def masked_by(place, words, key, seed, publics, *, binding):
    """Mask a vector as the protocol does."""
    result = MaskedSum(words)
    result.add(seed_key(seed, binding, place))
    pair = KeyPair(key)
    for other, public in publics.items():
        result.add_pair_mask(pair_key(pair.agree(public), binding, place, other), place, other)
    return result.words


def peeled(place, words, key, seed, publics, *, binding):
    """Take both kinds of mask off: what anyone can do who holds a client's masking key and its seed."""
    result = MaskedSum(words)
    result.subtract(seed_key(seed, binding, place))
    pair = KeyPair(key)
    for other, public in publics.items():
        result.subtract_pair_mask(pair_key(pair.agree(public), binding, place, other), place, other)
    return result.words


def rebuilt(unmaskings, owner, survivors, threshold):
    """Rebuild the secret of one client from what the others revealed about it (complete graph, everyone a member)."""
    shares = {}
    for message in unmaskings:
        places = [p for p in range(survivors["size"]) if (p in survivors["alive"]) == (owner in survivors["alive"])]
        text = message.seeds if owner in survivors["alive"] else message.keys
        shares[message.place] = text[places.index(owner) * SHARE_SIZE :][:SHARE_SIZE]
    holders = sorted(shares)[:threshold]
    return LagrangeBasis([holder + 1 for holder in holders]).secret([shares[holder] for holder in holders])


def spy(run, captured):
    """Note every reply that the sites send from now on, and the adverts that they sent before."""
    captured["keys"] = [site.client().keys(run.plan) for site in run.sites.values()]
    for site in run.sites.values():
        _record(site, captured)


def _record(site, captured):
    answer = site.answer

    def recorded(method, message, *more):
        reply = answer(method, message, *more)
        captured.setdefault(method, []).append(reply)
        return reply

    site.answer = recorded
