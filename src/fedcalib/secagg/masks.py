"""Masks: ChaCha20 keystreams read as 64-bit words and added modulo 2^64."""

from __future__ import annotations

from typing import final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedcalib.secagg.keys import derive
from fedcalib.types import Words

_PIECE = 1 << 13  # words; a piece and its keystream stay in the cache


def seed_key(seed: bytes, binding: bytes, place: int) -> bytes:
    """Derive the key of a client's own mask; `binding` names run, step, attempt and roster."""
    return derive(seed, "self mask", binding, place)


def pair_key(secret: bytes, binding: bytes, one: int, other: int) -> bytes:
    """Derive the key of the mask between two clients, the same on both sides."""
    return derive(secret, "pair mask", binding, min(one, other), max(one, other))


def keystream(key: bytes, words: int) -> Words:
    """Stretch a key of 32 bytes to so many uniform words."""
    stream = MaskedSum(np.zeros(words, np.uint64))
    stream.add(key)
    return stream.words


@final
class MaskedSum:
    """A vector to which masks are added and from which they are taken off."""

    def __init__(self, words: Words) -> None:
        self.words: Words = words.copy()
        self._zeros = memoryview(bytes(8 * min(_PIECE, len(words))))
        self._stream = bytearray(len(self._zeros) + 63)  # the cipher wants room for a block more
        self._mask = np.frombuffer(self._stream, "<u8", count=len(self._zeros) // 8)

    def add(self, key: bytes) -> None:
        """Add the mask of a key."""
        self._apply(key, np.add)

    def subtract(self, key: bytes) -> None:
        """Take off the mask of a key."""
        self._apply(key, np.subtract)

    def toward(self, key: bytes, place: int, other: int) -> None:
        """Add the mask that the client at `place` owes to the pair: the lower place adds, the higher one subtracts."""
        self._apply(key, np.add if place < other else np.subtract)

    def against(self, key: bytes, place: int, other: int) -> None:
        """Undo `toward`."""
        self._apply(key, np.subtract if place < other else np.add)

    def _apply(self, key: bytes, operation: np.ufunc) -> None:
        # The nonce may be constant because a key is derived for one vector and never used again.
        encryptor = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
        for start in range(0, len(self.words), _PIECE):
            piece = self.words[start : start + _PIECE]
            encryptor.update_into(self._zeros[: 8 * len(piece)], self._stream)
            operation(piece, self._mask[: len(piece)], out=piece)
