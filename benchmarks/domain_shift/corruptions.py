"""Seven ways to spoil small pictures, with the severities of CIFAR-10-C, written with NumPy and SciPy.

These are the kinds that the stored logits lack: elastic, fog, frost, glass, motion, snow and zoom. They follow the
description of the benchmark and its constants; they are not its files. Frost differs most: the benchmark lays
photographs of frozen windows over a picture, and none can be had here, so ridges of fractal noise stand in for them.
Pictures are (n, side, side, channels) in [0, 1]; severities are 1 to 5.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import ndimage

from fedcalib.types import Floats

Corruption = Callable[[Floats, int, np.random.Generator], Floats]

FOG = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))  # strength, decay of the fractal
FROST = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))  # shares of the picture and of the frost
GLASS = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # blur, passes over the pixels
MOTION = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))  # length and decay of the streak, in pixels
ZOOM = (6, 11, 16, 21, 26)  # enlargements, 1% apart
SNOW = (  # mean, deviation, enlargement and threshold of the flakes; length and decay of their streaks; share kept
    (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
    (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
)
ELASTIC = ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))  # of a side


def elastic(pictures: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Move three corners of an inner triangle at random, then every pixel by smoothed noise."""
    count, side = pictures.shape[:2]
    strength, smoothness, corners = (side * share for share in ELASTIC[severity - 1])
    middle, third = side // 2, side // 3
    ends = middle + third * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    moved = ends + rng.uniform(-corners, corners, (count, 3, 2))
    whole = np.concatenate([moved, np.ones((count, 3, 1))], axis=2)
    back = np.linalg.solve(whole, np.broadcast_to(ends, (count, 3, 2)))  # where each target pixel comes from
    grid = np.stack([*np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), np.ones((side, side))], axis=2)
    places = grid @ back[:, None]
    noise = rng.uniform(-1, 1, (count, side, side, 2))
    if strength:
        smooth = ndimage.gaussian_filter(noise, (0, smoothness, smoothness, 0), mode="reflect", truncate=3.0)
        places = places + strength * smooth
    return sampled(pictures, places)


def fog(pictures: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Add a fractal cloud, and darken so that the brightest pixel stays where it was."""
    strength, decay = FOG[severity - 1]
    brightest = pictures.max(axis=(1, 2, 3), keepdims=True)
    cloud = plasma(len(pictures), pictures.shape[1], decay, rng)[..., None]
    return np.clip((pictures + strength * cloud) * brightest / (brightest + strength), 0, 1)


def frost(pictures: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Lay bluish ridges over the picture: where fractal noise is near its middle, ice is thick."""
    share, thickness = FROST[severity - 1]
    noise = plasma(len(pictures), pictures.shape[1], 1.7, rng)
    middle = np.median(noise, axis=(1, 2), keepdims=True)
    ice = 1 - np.abs(noise - middle) / np.abs(noise - middle).max(axis=(1, 2), keepdims=True)
    colour = np.array([0.75, 0.87, 0.95])[: pictures.shape[3]]
    return np.clip(share * pictures + thickness * ice[..., None] * colour, 0, 1)


def glass(pictures: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Blur, exchange pixels with neighbours, blur again."""
    blur, passes = GLASS[severity - 1]
    seen = ndimage.gaussian_filter(pictures, (0, blur, blur, 0))
    side, rows = pictures.shape[1], np.arange(len(pictures))
    for row in [row for _ in range(passes) for row in range(side - 1, 1, -1)]:
        for column in range(side - 1, 1, -1):
            there = (rows, row + rng.integers(-1, 1, len(rows)), column + rng.integers(-1, 1, len(rows)))
            seen[:, row, column], seen[there] = seen[there], seen[:, row, column].copy()
    return np.clip(ndimage.gaussian_filter(seen, (0, blur, blur, 0)), 0, 1)


def motion(pictures: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Smear along a direction within 45 degrees of the horizontal."""
    length, decay = MOTION[severity - 1]
    return smeared(pictures, length, decay, np.radians(rng.uniform(-45, 45, len(pictures))))


def snow(pictures: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Whiten the picture, then add two layers of smeared flakes."""
    mean, deviation, larger, threshold, length, decay, kept = SNOW[severity - 1]
    flakes = enlarged(rng.normal(mean, deviation, (*pictures.shape[:3], 1)), larger)
    flakes = np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)
    flakes = smeared(flakes, length, decay, np.radians(rng.uniform(-135, -45, len(pictures))))
    grey = (pictures * np.array([0.299, 0.587, 0.114])).sum(axis=3, keepdims=True)
    pale = kept * pictures + (1 - kept) * np.maximum(pictures, 1.5 * grey + 0.5)
    return np.clip(pale + flakes + flakes[:, ::-1, ::-1], 0, 1)


def zoom(pictures: Floats, severity: int, rng: np.random.Generator) -> Floats:
    """Average the picture with enlargements of itself."""
    factors = 1 + 0.01 * np.arange(ZOOM[severity - 1])
    total = sum((enlarged(pictures, factor) for factor in factors), start=pictures.copy())
    return np.clip(total / (len(factors) + 1), 0, 1)


CORRUPTIONS: dict[str, Corruption] = {
    "elastic": elastic,
    "fog": fog,
    "frost": frost,
    "glass": glass,
    "motion": motion,
    "snow": snow,
    "zoom": zoom,
}


def sampled(pictures: Floats, places: Floats) -> Floats:
    """Read pictures between their pixels, at places of shape (n, side, side, 2); edges are reflected."""
    count, side = pictures.shape[:2]
    which = np.broadcast_to(np.arange(count)[:, None, None], (count, side, side))
    where = np.stack([which, places[..., 0], places[..., 1]])
    channels = range(pictures.shape[3])
    return np.stack(
        [ndimage.map_coordinates(pictures[..., at], where, order=1, mode="mirror") for at in channels], axis=3
    )


def enlarged(pictures: Floats, factor: float) -> Floats:
    """The middle of each picture, enlarged to its size."""
    side = pictures.shape[1]
    along = (side - 1) / 2 + (np.arange(side) - (side - 1) / 2) / factor
    places = np.stack(np.meshgrid(along, along, indexing="ij"), axis=2)
    return sampled(pictures, np.broadcast_to(places, (len(pictures), *places.shape)))


def smeared(pictures: Floats, length: int, decay: float, angles: Floats) -> Floats:
    """Average along a streak that begins at each pixel and fades like half a bell curve."""
    side = pictures.shape[1]
    steps = np.arange(2 * length + 1)
    weights = np.exp(-0.5 * (steps / decay) ** 2)
    rows, columns = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    down, right = np.sin(angles)[:, None, None], np.cos(angles)[:, None, None]
    total = np.zeros_like(pictures)
    for step, weight in zip(steps, weights / weights.sum(), strict=True):
        total += weight * sampled(pictures, np.stack([rows + step * down, columns + step * right], axis=3))
    return total


def plasma(count: int, side: int, decay: float, rng: np.random.Generator) -> Floats:
    """Fractal noise in [0, 1], shape (count, side, side), that wraps around: diamonds and squares, ever finer.

    A new point is the mean of its four neighbours and noise, whose width falls by `decay` with each refinement. The
    side is a power of two.
    """
    points, width = rng.normal(size=(count, 1, 1)), 1.0
    while points.shape[1] < side:
        size = points.shape[1]
        finer = np.zeros((count, 2 * size, 2 * size))
        finer[:, ::2, ::2] = points
        square = _mean(points, ((0, 0), (0, -1), (-1, 0), (-1, -1)))
        finer[:, 1::2, 1::2] = square + width * rng.uniform(-1, 1, square.shape)
        beside = (points + np.roll(points, -1, axis=2) + finer[:, 1::2, 1::2] + np.roll(finer[:, 1::2, 1::2], 1, 1)) / 4
        below = (points + np.roll(points, -1, axis=1) + finer[:, 1::2, 1::2] + np.roll(finer[:, 1::2, 1::2], 1, 2)) / 4
        finer[:, ::2, 1::2] = beside + width * rng.uniform(-1, 1, square.shape)
        finer[:, 1::2, ::2] = below + width * rng.uniform(-1, 1, square.shape)
        points, width = finer, width / decay
    points = points - points.min(axis=(1, 2), keepdims=True)
    return points / points.max(axis=(1, 2), keepdims=True)


def _mean(points: Floats, shifts: tuple[tuple[int, int], ...]) -> Floats:
    return sum(np.roll(points, shift, axis=(1, 2)) for shift in shifts) / len(shifts)
