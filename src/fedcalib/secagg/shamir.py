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


def split(hidden: Sequence[bytes], threshold: int, points: Sequence[int]) -> list[list[bytes]]:
    """Share several secrets among points so that any `threshold` of them give each back; one list of shares a point."""
    # All polynomials are evaluated at once, side by side in one long integer. Points are small, so there is room
    # for them to grow without touching, and one reduction at the end is cheaper than one a step.
    room = -(-(PRIME.bit_length() + threshold * (max(points).bit_length() + 1)) // 8)
    leading = [_abreast([secrets.randbelow(PRIME) for _ in hidden], room) for _ in range(threshold - 1)]
    constant = _abreast([int.from_bytes(secret, "little") for secret in hidden], room)
    return [_apart(_value(leading, constant, point), room, len(hidden)) for point in points]


def _abreast(numbers: Sequence[int], room: int) -> int:
    return int.from_bytes(b"".join(number.to_bytes(room, "little") for number in numbers), "little")


def _value(leading: Sequence[int], constant: int, point: int) -> int:
    value = 0
    for coefficient in leading:
        value = (value + coefficient) * point
    return value + constant


def _apart(value: int, room: int, count: int) -> list[bytes]:
    raw = value.to_bytes(room * count, "little")
    numbers = (int.from_bytes(raw[at : at + room], "little") for at in range(0, room * count, room))
    return [(number % PRIME).to_bytes(SHARE_SIZE, "little") for number in numbers]


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
