"""Scored records at any temperature, computed once and shared by all trials.

A trial deals some records to sources and measures on the rest. What is measured on the rest is what all records say
minus what the sources' records say, so a trial never touches the rest at all.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fedcalib.types import Array, Floats, Ints

BINS = 15
LOWEST, HIGHEST, STEPS = 0.5, 16.0, 1024
LADDER = np.geomspace(LOWEST, HIGHEST, STEPS)


class Pool:
    """One shifted data set: its logits, and a table of confidences that grows by a row a temperature."""

    def __init__(self, logits: Array, labels: Ints) -> None:
        self.classes = logits.shape[1]
        self.labels = labels
        self.right = (logits.argmax(axis=1) == labels).astype(np.float32)
        self._shifted = (logits - logits.max(axis=1, keepdims=True)).astype(np.float32)
        self._rows: dict[float, int] = {}
        self.confidence = np.empty((0, len(labels)), dtype=np.float32)
        self.bins = np.empty((0, len(labels)), dtype=np.uint8)
        self.loss = np.empty((0, len(labels)), dtype=np.float32)
        self.binned = np.empty((0, BINS))  # right minus confidence over all records, by temperature and bin
        self.squares = np.empty(0)  # the same squared, by temperature
        self._used = 0

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, temperatures: Floats) -> Ints:
        """Say in which rows of the table these temperatures are; compute those that are new."""
        distinct, inverse = np.unique(temperatures, return_inverse=True)
        found = np.array([self._row(float(one)) for one in distinct])
        return found[inverse.reshape(-1)]

    def near(self, temperatures: Floats) -> Ints:
        """Give the rows of the nearest rungs of a fine ladder: 0.34% apart, which no error of ours can see."""
        place = np.log(np.clip(temperatures, LOWEST, HIGHEST) / LOWEST) / np.log(HIGHEST / LOWEST) * (STEPS - 1)
        return self.rows(LADDER[np.rint(place).astype(int)])

    def _row(self, temperature: float) -> int:
        if temperature in self._rows:
            return self._rows[temperature]
        if self._used == len(self.confidence):
            self._grow()
        powers = np.exp(self._shifted / np.float32(temperature))
        mass = powers.sum(axis=1)
        row = self._used
        self.confidence[row] = 1 / mass
        self.bins[row] = np.minimum((self.confidence[row] * BINS).astype(np.uint8), BINS - 1)
        own = self._shifted[np.arange(len(self)), self.labels]
        self.loss[row] = np.log(mass) - own / np.float32(temperature)
        self._rows[temperature] = row
        gaps = self.right - self.confidence[row]
        self.binned[row] = np.bincount(self.bins[row], gaps, BINS)
        self.squares[row] = np.einsum("i,i->", gaps, gaps, dtype=np.float64)
        self._used += 1
        return row

    def _grow(self) -> None:
        more = max(64, len(self.confidence))
        for name in ("confidence", "bins", "loss", "binned", "squares"):
            table = getattr(self, name)
            setattr(self, name, np.concatenate([table, np.empty((more, *table.shape[1:]), dtype=table.dtype)]))


class Trials:
    """Many random splits of one pool: in each, some records belong to sources and the rest measures."""

    def __init__(self, pool: Pool, sources: int, samples: int, trials: int, rng: np.random.Generator) -> None:
        self.pool, self.sources, self.samples, self.rng = pool, sources, samples, rng
        keys = rng.random((trials, len(pool)), dtype=np.float32)
        self.dealt = np.argpartition(keys, sources * samples, axis=1)[:, : sources * samples]
        self.dealt = rng.permuted(self.dealt, axis=1)  # (trials, N): source k holds columns k * samples on
        self.right = pool.right[self.dealt]

    def __len__(self) -> int:
        return len(self.dealt)

    @property
    def left(self) -> int:
        """Count the records of a trial that measure."""
        return len(self.pool) - self.dealt.shape[1]

    def read(self, table: Array, rows: Ints, columns: int | None = None) -> Array:
        """Read a table of the pool in each trial's row, at each trial's dealt records, (trials, N)."""
        return table.reshape(-1).take(rows[:, None] * len(self.pool) + self.dealt[:, :columns], mode="clip")

    def gaps(self, rows: Ints) -> Floats:
        """Sum right minus confidence over the sources' records, (trials,)."""
        confidence = self.read(self.pool.confidence, rows)
        return self.right.sum(axis=1, dtype=np.float64) - confidence.sum(axis=1, dtype=np.float64)

    def binned(self, rows: Ints) -> Floats:
        """Sum right minus confidence by bin, (trials, bins)."""
        return self._by_bin(rows, self.right - self.read(self.pool.confidence, rows))

    def _by_bin(self, rows: Ints, values: Array) -> Floats:
        cells = self.read(self.pool.bins, rows) + (BINS * np.arange(len(self), dtype=np.int32))[:, None]
        return np.bincount(cells.reshape(-1), values.reshape(-1), BINS * len(self)).reshape(-1, BINS)

    def losses(self, rows: Ints, worst: float, columns: int | None = None) -> Floats:
        """Sum the cut log loss over the sources' records, (trials,)."""
        loss = self.read(self.pool.loss, rows, columns)
        return np.minimum(loss, np.float32(worst)).sum(axis=1, dtype=np.float64)

    def noise(self, width: float, cells: int = 1) -> Floats:
        """Draw what all sources' Laplace noises add up to, (trials, cells)."""
        gamma = self.rng.gamma(self.sources, width, (2, len(self), cells))
        return gamma[0] - gamma[1]

    def whole_noise(self, width: float, cells: int) -> Floats:
        """Draw what all sources' discrete Laplace noises add up to, (trials, cells)."""
        drawn = self.rng.negative_binomial(self.sources, 1 - np.exp(-1 / width), (2, len(self), cells))
        return (drawn[0] - drawn[1]).astype(np.float64)

    def measured(self, rows: Ints) -> tuple[Floats, Floats]:
        """Measure temperatures on the rest: calibration error and Brier score of the top label, (trials,) each."""
        gaps = self.right - self.read(self.pool.confidence, rows)
        error = np.abs(self.pool.binned[rows] - self._by_bin(rows, gaps)).sum(axis=1) / self.left
        own = np.einsum("ij,ij->i", gaps, gaps, dtype=np.float64)
        return error, (self.pool.squares[rows] - own) / self.left

    @cached_property
    def counts(self) -> tuple[Floats, Floats]:
        """Count right and wrong records of the sources by bin of their confidence, (trials, bins) each."""
        row = np.broadcast_to(self.pool.rows(np.ones(1)), len(self))
        right = self._by_bin(row, self.right)
        return right, self._by_bin(row, np.ones_like(self.right)) - right

    def measured_steps(self, steps: Floats) -> tuple[Floats, Floats]:
        """Measure step functions of the confidence on the rest, as `measured` does temperatures."""
        row = int(self.pool.rows(np.ones(1))[0])
        every = np.bincount(self.pool.bins[row], minlength=BINS)
        right = np.bincount(self.pool.bins[row], self.pool.right, BINS)
        own_right, own_wrong = self.counts
        right, wrong = right - own_right, every - right - own_wrong
        cells = np.minimum((steps * BINS).astype(int), BINS - 1) + BINS * np.arange(len(self))[:, None]
        gaps = right - steps * (right + wrong)
        binned = np.bincount(cells.reshape(-1), gaps.reshape(-1), BINS * len(self)).reshape(-1, BINS)
        squares = (right * (1 - steps) ** 2 + wrong * steps**2).sum(axis=1)
        return np.abs(binned).sum(axis=1) / self.left, squares / self.left
