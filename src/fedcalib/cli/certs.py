"""`fedcalib certs`: keys and certificates for a pilot, and their year: add, renew, rotate, check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, final

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from fedcalib.cli import options
from fedcalib.cli import voice as exits
from fedcalib.cli.voice import Voice
from fedcalib.workflows.documents import TextTable


@final
class _Makes(TyperGroup):
    """A group whose command `make` need not be spelled out."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, args if args and args[0] in self.commands else ["make", *args])


app = typer.Typer(cls=_Makes, help="Make keys and certificates for a pilot, and look after them.", no_args_is_help=True)

Folder = Annotated[Path, Argument(help="Folder that `fedcalib certs` made.")]
Site = Annotated[str, Argument(help="Name of the site.")]
Hosts = Annotated[
    list[str] | None, Option(help="Name or address by which sites reach the server; repeat it for several.")
]


@app.command()
def make(
    folder: Annotated[Path, Argument(help="New folder for the keys; one subfolder per site goes to that site.")],
    sites: Annotated[list[str], Argument(help="Names of the sites.")],
    *,
    host: Hosts = None,
) -> None:
    """Make a certificate authority, the server's certificate, and each site's node key and identity."""
    from fedcalib.deploy.certificates import make

    written = make(folder, sites, host or ["127.0.0.1", "localhost"])
    rows = tuple((name, str(path)) for name, path in written.items())
    voice = Voice(False)
    voice.result({}, [TextTable("Keys for a pilot, valid for a year", ("for", "where"), rows)])
    voice.note("Give each site its own subfolder and nobody else's; keep ca.key and server.key at the server.")


@app.command()
def add(folder: Folder, site: Site) -> None:
    """Make the keys of a further site, and the list of identities with it."""
    from fedcalib.deploy.certificates import add

    place = add(folder, site)
    _tell(f"Give {place} to {site}, admit it with `fedcalib server admit {site}`", folder)


@app.command()
def rotate(folder: Folder, site: Site) -> None:
    """Replace the node key and the identity of a site, for example after somebody else may have seen them."""
    from fedcalib.deploy.certificates import rotate

    place = rotate(folder, site)
    _tell(f"Give {place} to {site}, and admit its new key with `fedcalib server admit {site}`", folder)


@app.command()
def renew(folder: Folder, *, host: Hosts = None) -> None:
    """Renew the certificates of the authority and the server for another year; sites stay connected meanwhile."""
    from fedcalib.deploy.certificates import renew

    renew(folder, host or [])
    voice = Voice(False)
    voice.note(f"Restart the server, and send {folder / 'ca.crt'} to the sites before their old one ends.")


@app.command()
def check(folder: Folder, *, format_: options.Shape = options.Format.TEXT) -> None:
    """Check when certificates end, who may read keys, and whether they belong together; exit code 4 where not fine."""
    from fedcalib.deploy.certificates import check

    found = check(folder)
    rows = tuple((str(one.file), "fine" if one.fine else "NOT FINE", one.what) for one in found)
    document = [{"file": str(one.file), "fine": one.fine, "what": one.what} for one in found]
    table = TextTable("Keys", ("file", "", "what"), rows)
    Voice(format_ is options.Format.JSON).result({"keys": document}, [table])
    if not all(one.fine for one in found):
        raise typer.Exit(exits.REFUSED)


def warn_of_expiry(folder: Path, voice: Voice) -> None:
    """Warn of certificates that end within 30 days."""
    from fedcalib.deploy.certificates import check

    for one in check(folder):
        if not one.fine:
            voice.warn(f"{one.file} is {one.what}.")


def _tell(what: str, folder: Path) -> None:
    Voice(False).note(f"{what}. Send the new {folder / 'directory.json'} to every site, by a way you trust.")
