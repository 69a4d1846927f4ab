"""`fedcalib certs`: keys and certificates for a pilot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from fedcalib.cli.voice import Table, Voice


def certs(
    folder: Annotated[Path, Argument(help="New folder for the keys; one subfolder a site goes to that site.")],
    sites: Annotated[list[str], Argument(help="Names of the sites.")],
    *,
    host: Annotated[
        list[str] | None, Option(help="Name or address by which sites reach the server; repeat it for several.")
    ] = None,
) -> None:
    """Make a certificate authority, the server's certificate, and each site's node key and identity."""
    from fedcalib.certificates import make

    written = make(folder, sites, host or ["127.0.0.1", "localhost"])
    rows = tuple((name, str(path)) for name, path in written.items())
    voice = Voice(False)
    voice.result({}, [Table("Keys for a pilot, valid for a year", ("for", "where"), rows)])
    voice.note("Give each site its own subfolder and nobody else's; keep ca.key and server.key at the server.")
