"""`fedcalib server`: start the server of a federation, let sites in, shut them out, and watch it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fedcalib.cli.certs import warn_of_expiry
from fedcalib.cli.voice import Voice
from fedcalib.deploy import commands as deployment
from fedcalib.deploy.commands import check_keys, exec_command
from fedcalib.deploy.control import Control

app = typer.Typer(help="Start the server of a federation, let sites in, and shut them out.", no_args_is_help=True)

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
    if folder is not None:
        warn_of_expiry(folder, Voice(False))
    exec_command(deployment.superlink(link, folder, state), show)


@app.command()
def admit(
    sites: Annotated[list[str], Argument(help="Names of the sites, as given to `fedcalib certs`.")],
    *,
    keys: Annotated[Path, Option(help="Folder with the sites' public keys, one subfolder per site.")],
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


@app.command()
def revoke(
    site: Annotated[str, Argument(help="Name of the site, as given to `fedcalib certs`.")],
    *,
    keys: Annotated[Path, Option(help="Folder that `fedcalib certs` made.")],
    host: Host = "127.0.0.1",
    port: Port = 8000,
) -> None:
    """Shut a site out: the server no longer knows its node, and the list of identities no longer has it."""
    from fedcalib.deploy.certificates import remove

    voice = Voice(False)
    gone = Control(deployment.Link(host, port, keys / "ca.crt")).revoke(site)
    voice.note(f"The server shut out {site}." if gone else f"The server knew no node of {site}.")
    if remove(keys, site):
        voice.note(f"Send the new {keys / 'directory.json'} to every site: until then they still count {site} in.")


@app.command()
def monitor(
    *,
    listen: Annotated[str, Option(help="Address for /health and /metrics.")] = "127.0.0.1:9101",
    keys: Keys = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    state: State = Path("server-state"),
) -> None:
    """Serve the server's health, and metrics for Prometheus, until it is stopped; needs the extra metrics."""
    from fedcalib.deploy.monitor import ServerVitals, served

    vitals = ServerVitals(deployment.Link(host, port, None if keys is None else keys / "ca.crt"), state, keys)
    with served(listen, vitals, vitals.collect) as found:
        Voice(False).note(f"Serving /health and /metrics at {listen.rpartition(':')[0]}:{found}.")
        threading.Event().wait()
