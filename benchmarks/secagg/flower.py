"""The peer: SecAgg+ put together from Flower's own published functions, in process and without its messages.

The steps follow its client mod and its workflow: two P-384 key pairs per client, shares of the seed and of the first
private key, Fernet for the shares, masks from NumPy's legacy generator modulo 2^32. Serialising messages is left out,
which is in Flower's favour.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

MODULUS = 1 << 32


@dataclass
class Node:
    """One client of SecAgg+."""

    place: int
    threshold: int
    keys: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    held: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    common: dict[int, bytes] = field(default_factory=dict)

    def setup(self) -> tuple[bytes, bytes]:
        first, second = generate_key_pairs(), generate_key_pairs()
        self.masking, self.sealing = private_key_to_bytes(first[0]), private_key_to_bytes(second[0])
        return public_key_to_bytes(first[1]), public_key_to_bytes(second[1])

    def share(self, keys: dict[int, tuple[bytes, bytes]]) -> dict[int, bytes]:
        self.keys, self.seed = keys, os.urandom(32)
        seeds = create_shares(self.seed, self.threshold, len(keys))
        privates = create_shares(self.masking, self.threshold, len(keys))
        sealed = {}
        for at, (other, (_, public)) in enumerate(keys.items()):
            if other == self.place:
                self.held[other] = seeds[at], privates[at]
                continue
            self.common[other] = generate_shared_key(bytes_to_private_key(self.sealing), bytes_to_public_key(public))
            text = share_keys_plaintext_concat(self.place, other, seeds[at], privates[at])
            sealed[other] = encrypt(self.common[other], text)
        return sealed

    def mask(self, sealed: dict[int, bytes], vector: np.ndarray) -> list[np.ndarray]:
        for other, box in sealed.items():
            _, _, seed, private = share_keys_plaintext_separate(decrypt(self.common[other], box))
            self.held[other] = seed, private
        shapes = [vector.shape]
        total = parameters_addition([vector], pseudo_rand_gen(self.seed, MODULUS, shapes))
        for other in sealed:
            public = bytes_to_public_key(self.keys[other][0])
            key = generate_shared_key(bytes_to_private_key(self.masking), public)
            move = parameters_addition if self.place > other else parameters_subtraction
            total = move(total, pseudo_rand_gen(key, MODULUS, shapes))
        return parameters_mod(total, MODULUS)

    def unmask(self, alive: set[int]) -> dict[int, bytes]:
        return {other: shares[0] if other in alive else shares[1] for other, shares in self.held.items()}


def read_sum(
    masked: dict[int, list[np.ndarray]],
    revealed: list[dict[int, bytes]],
    keys: dict[int, tuple[bytes, bytes]],
    threshold: int,
) -> np.ndarray:
    """The server's part after all replies are in."""
    alive = sorted(masked)
    total = masked[alive[0]]
    for place in alive[1:]:
        total = parameters_addition(total, masked[place])
    total = parameters_mod(total, MODULUS)
    shapes = [total[0].shape]
    for place in keys:
        secret = combine_shares([shares[place] for shares in revealed][:threshold])
        if place in masked:
            total = parameters_subtraction(total, pseudo_rand_gen(secret, MODULUS, shapes))
            continue
        for other in alive:
            key = generate_shared_key(bytes_to_private_key(secret), bytes_to_public_key(keys[other][0]))
            move = parameters_addition if place > other else parameters_subtraction
            total = move(total, pseudo_rand_gen(key, MODULUS, shapes))
    return parameters_mod(total, MODULUS)[0]
