"""Ways to deal one data set out to simulated clients, and a plot of how many records of each class they hold.

`Federation.iid` and `Federation.dirichlet` are the two plain ones; the label skew is that of Yurochkin et al. (2019).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedcalib.errors import InputError, needs
from fedcalib.federation import Federation
from fedcalib.records import Records
from fedcalib.types import Ints


def iid(records: Records, clients: int, seed: int) -> Federation:
    """Shuffle the records and deal them out evenly.

    Parameters
    ----------
    records
        The data set.
    clients
        The number of clients.
    seed
        The seed of the shuffle.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.data import partition
    >>> labels = np.arange(600) % 3
    >>> records = fc.Records.of_probs(np.full((600, 3), 1 / 3), labels)
    >>> partition.iid(records, clients=4, seed=0).sizes.tolist()
    [150, 150, 150, 150]
    """
    return Federation.iid(records, clients, seed)


def dirichlet(
    records: Records, clients: int, beta: float, seed: int, *, fewest: int = 0, tries: int = 1000
) -> Federation:
    """Deal records out with label skew: each class is divided by proportions drawn from Dirichlet(beta).

    Parameters
    ----------
    records
        The data set.
    clients
        The number of clients.
    beta
        The concentration; the smaller, the more the classes of clients differ.
    seed
        The seed of the draws.
    fewest
        The fewest records of a client; proportions are drawn again until all clients hold as many.
    tries
        How often proportions are drawn before giving up.

    Raises
    ------
    InputError
        If no draw gives every client enough records.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.data import partition
    >>> labels = np.arange(600) % 3
    >>> records = fc.Records.of_probs(np.full((600, 3), 1 / 3), labels)
    >>> skewed = partition.dirichlet(records, clients=4, beta=0.5, seed=0, fewest=20)
    >>> len(skewed), int(skewed.sizes.sum()), bool(skewed.sizes.min() >= 20)
    (4, 600, True)
    """
    for attempt in range(tries):
        dealt = Federation.dirichlet(records, clients, beta, seed + 1_000_003 * attempt)
        if dealt.sizes.min() >= fewest:
            return dealt
    raise InputError(
        f"Expected every client to hold at least {fewest} records, found no such partition in {tries} tries; "
        "use a smaller `fewest`, fewer clients or a larger beta."
    )


def favourite_class(records: Records, clients: int, seed: int, *, others: float = 0.25) -> Federation:
    """Deal records out to clients of unequal size, each with a favourite class: the split of the FL-SWAG slides.

    Client sizes follow sorted uniform draws. A client has weight 1 for its favourite class and weight `others` for any
    other; each class is divided in proportion to size times weight, so every record goes to a client.

    Parameters
    ----------
    records
        The data set.
    clients
        The number of clients.
    seed
        The seed of the draws.
    others
        The weight of classes other than the favourite one, from 0 to 1.

    Raises
    ------
    InputError
        If there is no client, or no client has a weight above 0 for some class.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.data import partition
    >>> labels = np.arange(600) % 3
    >>> records = fc.Records.of_probs(np.full((600, 3), 1 / 3), labels)
    >>> uneven = partition.favourite_class(records, clients=3, seed=0)
    >>> partition.holdings(uneven).argmax(axis=1).tolist()
    [0, 1, 2]
    """
    if clients < 1 or not 0 <= others <= 1:
        raise InputError(f"Expected clients and a weight from 0 to 1 for other classes, found {clients} and {others}.")
    rng = np.random.default_rng(seed)
    sizes = np.sort(rng.uniform(0.1, 1.0, clients))
    preference = np.full((clients, records.classes), others)
    preference[np.arange(clients), np.arange(clients) % records.classes] = 1.0
    weights = sizes[:, None] * preference
    if (weights.sum(axis=0) <= 0).any():
        raise InputError(
            "Expected a client with a weight above 0 for every class, found a class without; raise `others`."
        )
    owner = np.empty(len(records), dtype=np.int64)
    for label in range(records.classes):
        rows = np.flatnonzero(records.labels == label)
        counts = rng.multinomial(len(rows), weights[:, label] / weights[:, label].sum())
        owner[rows] = rng.permutation(np.repeat(np.arange(clients), counts))
    return Federation.grouped(records, owner, clients)


def natural(records: Records, group: Any, fewest: int = 1) -> Federation:
    """Make a client of every writer, role or site that holds at least `fewest` records.

    Parameters
    ----------
    records
        The data set.
    group
        Whom each record belongs to, one value per record.
    fewest
        Groups with fewer records are left out.

    Raises
    ------
    InputError
        If no group holds as many records.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.data import partition
    >>> labels = np.arange(600) % 3
    >>> records = fc.Records.of_probs(np.full((600, 3), 1 / 3), labels)
    >>> federation = partition.natural(records, np.repeat(["ann", "bob", "eve"], [300, 290, 10]), fewest=50)
    >>> [federation.name(0), federation.name(1)], federation.sizes.tolist()
    (['ann', 'bob'], [300, 290])
    """
    names, owner, counts = np.unique(np.asarray(group), return_inverse=True, return_counts=True)
    kept = counts[owner.reshape(-1)] >= fewest
    if not kept.any():
        raise InputError(f"Expected a group with at least {fewest} records, found the most at {counts.max(initial=0)}.")
    return Federation.by_site(records.take(kept), names[owner.reshape(-1)][kept].astype(str))


def holdings(federation: Federation) -> Ints:
    """The number of records of each class at each client, (clients, classes).

    Parameters
    ----------
    federation
        The records, by client.

    Examples
    --------
    >>> import numpy as np
    >>> import fedcalib as fc
    >>> from fedcalib.data import partition
    >>> labels = np.arange(600) % 3
    >>> records = fc.Records.of_probs(np.full((600, 3), 1 / 3), labels)
    >>> partition.holdings(fc.Federation.by_site(records, np.repeat(["a", "b"], 300))).tolist()
    [[100, 100, 100], [100, 100, 100]]
    """
    classes = federation.records.classes
    flat = np.bincount(federation.owner * classes + federation.records.labels, minlength=len(federation) * classes)
    return flat.reshape(len(federation), classes)


def plot_holdings(federation: Federation, path: Path | str, title: str = "Who holds what") -> Path:
    """Plot one dot per client and class, its area in proportion to the number of records; needs matplotlib.

    Parameters
    ----------
    federation
        The records, by client.
    path
        The image file to write.
    title
        The title of the plot.

    Returns
    -------
    Path
        The image file.
    """
    with needs("draw who holds what"):
        from matplotlib.figure import Figure

    counts = holdings(federation)
    clients, classes = counts.shape
    figure = Figure(figsize=(max(4.0, 0.35 * min(clients, 60) + 1.5), 0.35 * min(classes, 40) + 1.5))
    axes = figure.subplots()
    across, up = np.indices(counts.shape).reshape(2, -1)
    axes.scatter(across, up, s=180 * counts.reshape(-1) / max(counts.max(initial=0), 1), color="#2a6f97")
    axes.set(xlabel="client", ylabel="class", title=title, xlim=(-1, clients), ylim=(-1, classes))
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return Path(path)
