"""`fedcalib certs`: keys and certificates for a pilot.

`fedcalib server`: start the server of a federation and let sites in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fedcalib.cli.voice import Voice
from fedcalib.deploy import commands as deployment
from fedcalib.deploy.commands import check_keys, exec_command
from fedcalib.deploy.control import Control
from fedcalib.workflows.documents import TextTable


def certs(
    folder: Annotated[Path, Argument(help="New folder for the keys; one subfolder a site goes to that site.")],
    sites: Annotated[list[str], Argument(help="Names of the sites.")],
    *,
    host: Annotated[
        list[str] | None, Option(help="Name or address by which sites reach the server; repeat it for several.")
    ] = None,
) -> None:
    """Make a certificate authority, the server's certificate, and each site's node key and identity."""
    from fedcalib.deploy.certificates import make

    written = make(folder, sites, host or ["127.0.0.1", "localhost"])
    rows = tuple((name, str(path)) for name, path in written.items())
    voice = Voice(False)
    voice.result({}, [TextTable("Keys for a pilot, valid for a year", ("for", "where"), rows)])
    voice.note("Give each site its own subfolder and nobody else's; keep ca.key and server.key at the server.")


app = typer.Typer(help="Start the server of a federation, and let sites in.", no_args_is_help=True)

Keys = Annotated[Path | None, Option(help="Folder that `fedcalib certs` made.")]
Insecure = Annotated[bool, Option("--insecure", help="No TLS and no node authentication: for a first try alone.")]
Host = Annotated[str, Option(help="Address of the server.")]
Port = Annotated[int, Option(help="Port of the server.")]
Show = Annotated[bool, Option("--print", help="Print the Flower command and stop.")]
State = Annotated[Path, Option(help="Private folder of the server.")]


@app.command()
def start(
    *,
    keys: Keys = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    state: State = Path("server-state"),
    insecure: Insecure = False,
    show: Show = False,
) -> None:
    """Start the server (a Flower SuperLink) with TLS and node authentication."""
    folder = check_keys(keys, insecure)
    link = deployment.Link(host, port, None if folder is None else folder / "ca.crt")
    exec_command(deployment.superlink(link, folder, state), show)


@app.command()
def admit(
    sites: Annotated[list[str], Argument(help="Names of the sites, as given to `fedcalib certs`.")],
    *,
    keys: Annotated[Path, Option(help="Folder with the sites' public keys, one subfolder a site.")],
    host: Host = "127.0.0.1",
    port: Port = 8000,
    state: State = Path("server-state"),
    show: Show = False,
) -> None:
    """Let sites in by their public node keys; the server has to be running."""
    link = deployment.Link(host, port, keys / "ca.crt")
    if not show:
        deployment.await_server(link)
    for site in sites:
        public = keys / site / "node.pub"
        if show:
            print(deployment.admit(link, public, state / "operator"))
        else:
            new = Control(link).admit(site, public)
            Voice(False).note(f"Admitted {site}." if new else f"{site} was admitted before.")
