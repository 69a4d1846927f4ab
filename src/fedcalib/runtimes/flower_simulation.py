"""Flower's simulation engine: virtual nodes on one machine, each with many logical clients.

It shows that a method survives real messages between real processes. Where only the answer matters, the in-process
runtime gives the same one, much faster.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import numpy as np

from fedcalib.errors import InputError
from fedcalib.federation import Federation
from fedcalib.records import Records
from fedcalib.runtimes.flower import Flower, client_app
from fedcalib.runtimes.station import Event
from fedcalib.secagg import Directory, Identity
from fedcalib.site.opening import write_identity
from fedcalib.site.policy import Policy

T = TypeVar("T")

_QUIET: Final = {"RAY_USAGE_STATS_ENABLED": "0", "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
_GENEROUS: Final = Policy(  # nobody is protected on one machine, and budgets are kept by whoever simulates
    mechanisms=(
        *("Exact", "FixedPoint", "PolyaShares", "GaussianShares"),
        *("ClippedGaussian", "LaplaceTerms", "RandomisedReports"),
    ),
    epsilon_a_query=1e6,
    epsilon_a_run=1e6,
    epsilon_a_year=1e9,
    fewest_records=0,
    simulation=True,
)


def simulate(
    federation: Federation,
    nodes: int,
    task: Callable[[Flower], T],
    *,
    cpus: int = 1,
    watch: Callable[[Event], None] | None = None,
) -> T:
    """Deal clients to virtual nodes, start Flower's simulation, and do a task with its runtime."""
    if not 3 <= nodes <= len(federation):
        raise InputError(f"Expected 3 to {len(federation)} nodes for {len(federation)} clients, found {nodes}.")
    os.environ.update(_QUIET)
    outcomes: list[T] = []
    with TemporaryDirectory(prefix="fedcalib-") as name:
        folder = Path(name)
        directory = _furnish(folder, federation, nodes)
        _run(folder, nodes, cpus, lambda grid: outcomes.append(task(Flower(grid, directory, sites=nodes, watch=watch))))
    return outcomes[0]


def _run(folder: Path, nodes: int, cpus: int, main: Callable[[Any], None]) -> None:
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    server = ServerApp()

    server.main()(lambda grid, context: main(grid))
    logging.getLogger("flwr").setLevel(logging.ERROR)
    backend = {"init_args": {"num_cpus": cpus, "include_dashboard": False}, "client_resources": {"num_cpus": 1}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_simulation(server, _app(str(folder)), num_supernodes=nodes, backend_config=backend)


def _app(folder: str) -> Any:
    """Make an app that finds a virtual node's files by its number."""

    def config(node: Mapping[str, Any]) -> dict[str, Any]:
        place = f"{folder}/{node['partition-id']}"
        return {
            "identity": f"{place}/identity.json",
            "directory": f"{folder}/directory.json",
            "state": f"{place}/state",
        }

    return client_app(lambda node: _records(Path(folder) / str(node["partition-id"])), lambda _: _GENEROUS, config)


def _furnish(folder: Path, federation: Federation, nodes: int) -> Directory:
    """Write each node's records and keys."""
    identities = [Identity(f"node-{node:05d}") for node in range(nodes)]
    dealt = np.arange(len(federation)) * nodes // len(federation)
    for node, identity in enumerate(identities):
        place = folder / str(node)
        write_identity(place / "identity.json", identity)
        mine = federation.subset(dealt == node)
        np.savez(place / "records.npz", allow_pickle=False, **_columns(mine))
    directory = Directory({identity.name: identity.public for identity in identities})
    (folder / "directory.json").write_text(directory.to_json(), encoding="utf-8")
    return directory


def _columns(federation: Federation) -> dict[str, Any]:
    records = federation.records
    columns = {"given": records.given, "labels": records.labels, "offsets": federation.offsets}
    flags = {"are_logits": np.array(records.are_logits)}
    unit = {} if records.unit is None else {"unit": records.unit}
    return {**columns, **flags, **unit, **{f"extra_{name}": column for name, column in records.extra.items()}}


def _records(place: Path) -> Federation:
    with np.load(place / "records.npz", allow_pickle=False) as saved:
        extra = {name.removeprefix("extra_"): saved[name] for name in saved if name.startswith("extra_")}
        unit = saved.get("unit")
        records = Records(saved["given"], saved["labels"], bool(saved["are_logits"]), unit, extra)
        return Federation(records, saved["offsets"])
