"""Shamir's secret sharing over a prime field, for secrets of 32 bytes.

A secret is the value at zero of a random polynomial of degree threshold - 1; a share is its value at a client's point.
Fewer shares than the threshold are independent of the secret. The prime is the smallest above 2^256, so that every
32 bytes are a field element.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from math import prod
from typing import final

from fedcalib.secagg.errors import ProtocolError

PRIME = 2**256 + 297
SECRET_SIZE = 32
SHARE_SIZE = 33


def split(secret: bytes, threshold: int, points: Sequence[int]) -> list[bytes]:
    """Share a secret among points so that any `threshold` of them give it back."""
    leading = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    constant = int.from_bytes(secret, "little")
    return [_value(leading, constant, point).to_bytes(SHARE_SIZE, "little") for point in points]


def _value(leading: Sequence[int], constant: int, point: int) -> int:
    value = 0
    for coefficient in leading:
        # Points are small, so one reduction at the end is cheaper than one a step.
        value = (value + coefficient) * point
    return (value + constant) % PRIME


@final
class Interpolation:
    """The weights that take shares at some points to the secret; made once, used for many secrets."""

    def __init__(self, points: Sequence[int]) -> None:
        if len(set(points)) != len(points) or min(points, default=0) < 1:
            raise ProtocolError("Expected shares from different clients, found two of the same.")
        everything = prod(points)
        parts = [x * prod(y - x for y in points if y != x) % PRIME for x in points]
        self._weights = [everything * inverse % PRIME for inverse in _inverses(parts)]

    def secret(self, shares: Sequence[bytes]) -> bytes:
        """Give back the secret behind shares in the order of the points."""
        pairs = zip(self._weights, shares, strict=True)
        value = sum(weight * int.from_bytes(share, "little") for weight, share in pairs) % PRIME
        if value >> 8 * SECRET_SIZE:
            raise ProtocolError("Expected shares of one secret, found some that do not belong together.")
        return value.to_bytes(SECRET_SIZE, "little")


def _inverses(values: Sequence[int]) -> list[int]:
    """Invert many field elements at the price of one inversion."""
    before = [1]
    for value in values:
        before.append(before[-1] * value % PRIME)
    running = pow(before[-1], -1, PRIME)
    inverses = []
    for value, product in zip(reversed(values), reversed(before[:-1]), strict=True):
        inverses.append(running * product % PRIME)
        running = running * value % PRIME
    return inverses[::-1]
