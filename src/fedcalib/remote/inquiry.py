"""An inquiry: which sites could take part in a run, and what is left of their budgets as far as each tells a server.

It takes two exchanges, spends nothing, and leaves nothing behind at the sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, final

from fedcalib import __version__
from fedcalib.loop import Outline
from fedcalib.records import Schema
from fedcalib.remote.protocol import PROTOCOL, Begin, Greeting, Introduction
from fedcalib.remote.sites import SiteConnections, Transport
from fedcalib.secagg import Directory


@final
@dataclass(frozen=True)
class SiteBudget:
    """Whether a site could take part, why not, and the epsilon that is left to it in this year, where it tells."""

    could: bool
    why: str
    epsilon_left: float | None

    def to_json(self) -> dict[str, Any]:
        """The answer as plain data; the field names are part of what `fedcalib budget --format json` prints."""
        return asdict(self)


def inquire(
    transport: Transport, directory: Directory, outline: Outline, schema: Schema, timeout: float
) -> dict[str, SiteBudget]:
    """What every site of a directory says to a run.

    Parameters
    ----------
    transport
        How texts reach the sites.
    directory
        The sites' identity keys.
    outline
        The run; sites check all of it, and do not keep it.
    schema
        The number of sites and classes that the run is for.
    timeout
        How many seconds to wait for sites, and for their replies.
    """
    whole = Greeting(PROTOCOL, __version__)
    first, _ = _replies(transport, directory, whole, schema.clients, timeout)
    asked = replace(whole, classes=schema.classes, begin=Begin(outline, ""))
    able, lost = _replies(transport, directory, asked, schema.clients, timeout)
    lost |= {site: _other_classes(one, schema) for site, one in able.items() if one.classes != schema.classes}
    return {
        site: SiteBudget(site not in lost, lost.get(site, ""), first[site].epsilon_left if site in first else None)
        for site in sorted(directory.keys)
        if site in able or site in lost
    }


def _replies(
    transport: Transport, directory: Directory, greeting: Greeting, wanted: int, timeout: float
) -> tuple[Mapping[str, Introduction], dict[str, str]]:
    connections = SiteConnections(transport, timeout, patience=1)
    found = connections.greet(wanted, directory.keys, greeting)
    return {site: reply for site, (_, reply) in found.items()}, connections.lost


def _other_classes(reply: Introduction, schema: Schema) -> str:
    return f"has {reply.classes} classes, and the job {schema.classes}; set classes in the job"
