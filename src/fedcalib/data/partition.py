"""Ways to deal one data set out to clients, and a picture of who then holds what.

`Federation.iid` and `Federation.dirichlet` are the two plain ones; the label skew is that of Yurochkin et al. (2019).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records
from fedcalib.types import Ints


def iid(records: Records, clients: int, seed: int) -> Federation:
    """Shuffle and deal evenly."""
    return Federation.iid(records, clients, seed)


def dirichlet(
    records: Records, clients: int, beta: float, seed: int, *, fewest: int = 0, tries: int = 1000
) -> Federation:
    """Skew labels: each class is dealt by shares drawn from Dirichlet(beta), drawn again until all hold `fewest`."""
    for attempt in range(tries):
        dealt = Federation.dirichlet(records, clients, beta, seed + 1_000_003 * attempt)
        if dealt.sizes.min() >= fewest:
            return dealt
    raise InputError(
        f"Expected every client to hold at least {fewest} records, found no such deal in {tries} tries; "
        "ask for fewer records, fewer clients or a larger beta."
    )


def favourite_class(records: Records, clients: int, seed: int, *, others: float = 0.25) -> Federation:
    """Deal uneven clients, each with a favourite class: the split of the FL-SWAG slides.

    Client sizes follow sorted uniform draws. A client wants its favourite class with weight 1 and any other with weight
    `others`; each class is dealt in proportion to size times want, so everything is dealt.
    """
    if clients < 1 or not 0 <= others <= 1:
        raise InputError(f"Expected clients and a weight from 0 to 1 for other classes, found {clients} and {others}.")
    rng = np.random.default_rng(seed)
    sizes = np.sort(rng.uniform(0.1, 1.0, clients))
    want = np.full((clients, records.classes), others)
    want[np.arange(clients), np.arange(clients) % records.classes] = 1.0
    shares = sizes[:, None] * want
    if (shares.sum(axis=0) <= 0).any():
        raise InputError("Expected every class to be wanted by a client, found one that is not; raise `others`.")
    owner = np.empty(len(records), dtype=np.int64)
    for label in range(records.classes):
        rows = np.flatnonzero(records.labels == label)
        counts = rng.multinomial(len(rows), shares[:, label] / shares[:, label].sum())
        owner[rows] = rng.permutation(np.repeat(np.arange(clients), counts))
    return Federation.grouped(records, owner, clients)


def natural(records: Records, group: Any, fewest: int = 1) -> Federation:
    """Make a client of every writer, role or site that holds at least so many records."""
    names, owner, counts = np.unique(np.asarray(group), return_inverse=True, return_counts=True)
    kept = counts[owner.reshape(-1)] >= fewest
    if not kept.any():
        raise InputError(
            f"Expected somebody with at least {fewest} records, found the most at {counts.max(initial=0)}."
        )
    return Federation.by_site(records.take(kept), names[owner.reshape(-1)][kept].astype(str))


def holdings(federation: Federation) -> Ints:
    """Count who holds how many records of each class, (clients, classes)."""
    classes = federation.records.classes
    flat = np.bincount(federation.owner * classes + federation.records.labels, minlength=len(federation) * classes)
    return flat.reshape(len(federation), classes)


def plot_holdings(federation: Federation, path: Path | str, title: str = "Who holds what") -> Path:
    """Draw a dot for each client and class, its area in proportion to the records held."""
    from matplotlib.figure import Figure

    held = holdings(federation)
    clients, classes = held.shape
    figure = Figure(figsize=(max(4.0, 0.35 * min(clients, 60) + 1.5), 0.35 * min(classes, 40) + 1.5))
    axes = figure.subplots()
    across, up = np.indices(held.shape).reshape(2, -1)
    axes.scatter(across, up, s=180 * held.reshape(-1) / max(held.max(initial=0), 1), color="#2a6f97")
    axes.set(xlabel="client", ylabel="class", title=title, xlim=(-1, clients), ylim=(-1, classes))
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return Path(path)
