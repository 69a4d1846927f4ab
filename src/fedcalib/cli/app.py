"""The commands put together, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import click
import typer

from fedcalib.cli import exits, ledger
from fedcalib.cli.apply import apply
from fedcalib.cli.audit import audit
from fedcalib.cli.calibrate import calibrate
from fedcalib.cli.certs import certs
from fedcalib.cli.compare import compare
from fedcalib.cli.config import defaults, stated
from fedcalib.cli.demo import demo
from fedcalib.cli.evaluate import evaluate
from fedcalib.cli.export import export
from fedcalib.cli.methods import methods
from fedcalib.cli.monitor import monitor
from fedcalib.cli.plan import plan
from fedcalib.cli.server import app as server
from fedcalib.cli.simulate import simulate
from fedcalib.cli.site import app as site
from fedcalib.cli.submit import submit
from fedcalib.cli.train import train
from fedcalib.cli.voice import SCHEMA_VERSION
from fedcalib.errors import FedcalibError

_INTERRUPTED = "Interrupted. Run the same command again to go on where it stopped."


def build() -> click.Group:
    """Put the commands together."""
    app = typer.Typer(
        name="fedcalib",
        help="Calibrated, trustworthy probabilities from data that cannot be pooled.",
        epilog="Exit codes: 0 fine, 1 our bug, 2 usage or bad input, 3 budget refused, 4 policy or cohort refused.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for command in (calibrate, evaluate, compare, monitor, apply, export, plan, audit, methods, train, demo):
        app.command()(command)
    app.add_typer(ledger.group(), name="ledger")
    for remote in (certs, submit, simulate):
        app.command()(remote)
    app.add_typer(server, name="server")
    app.add_typer(site, name="site")
    app.callback()(_general)
    group: Any = typer.main.get_command(app)
    return group  # type: ignore[no-any-return]  # a typer application with commands is a click group


def run(argv: Sequence[str]) -> int:
    """Run a command and say with which exit code it ends."""
    told: dict[str, dict[str, Any]] = {}
    try:
        group = build()
        told.update(defaults(argv, {name: _flags(command) for name, command in group.commands.items()}))
        with warnings.catch_warnings():
            if "--debug" not in argv:
                warnings.simplefilter("ignore")  # what a user has to know is said in words of our own
            code = group.main(list(argv), prog_name="fedcalib", standalone_mode=False, default_map=told)
        if code == exits.INTERRUPTED:  # which is how typer gives an interrupt back
            raise KeyboardInterrupt
        return code if isinstance(code, int) else exits.FINE
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _end(argv, told, _INTERRUPTED, exits.INTERRUPTED)
    except click.ClickException as error:
        return _end(argv, told, error.format_message(), exits.USAGE)
    except FedcalibError as error:
        return _end(argv, told, str(error), exits.exit_code(error))
    except Exception as error:
        what = f"This is a bug in fedcalib ({type(error).__name__}: {error}). Add --debug to see where, and report it."
        return _end(argv, told, what, exits.BUG)


def _flags(command: click.Command) -> dict[str, str]:
    """Say which parameter each flag of a command sets."""
    return {max(parameter.opts, key=len).lstrip("-"): str(parameter.name) for parameter in command.params}


def _end(argv: Sequence[str], told: Mapping[str, Mapping[str, Any]], message: str, code: int) -> int:
    """Say why a command ends, as JSON too where JSON was asked for."""
    configured = next((told[word] for word in argv if word in told), {})
    if "--debug" in argv or configured.get("debug"):
        traceback.print_exc()
    if message:  # a call without a command has shown the help instead
        print(f"Error: {message}", file=sys.stderr)
    if (stated(argv, "--format") or configured.get("format_")) == "json":
        document = {"schema_version": SCHEMA_VERSION, "error": message, "exit_code": code}
        print(json.dumps(document, indent=1), flush=True)
    return code


def _tell_version(wanted: bool) -> None:
    if wanted:
        from fedcalib import __version__

        print(__version__)
        raise typer.Exit


def _general(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="Say which version this is.")
    ] = False,
) -> None:
    """Calibrated, trustworthy probabilities from data that cannot be pooled."""
