"""The commands put together, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fedcalib.cli import voice as exits
from fedcalib.cli.settings import USUAL, defaults, stated
from fedcalib.errors import FedcalibError, needs
from fedcalib.registry import Registered
from fedcalib.workflows.documents import SCHEMA_VERSION
from fedcalib.workflows.facts import command as noted

_ENVIRONMENT: Final = {"auto_envvar_prefix": "FEDCALIB"}  # `fedcalib site start --data`: FEDCALIB_SITE_START_DATA
# the base of all errors of use: click's own, or that of the click inside typer from 0.26 on
_USAGE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
_INTERRUPTED = "Interrupted. Run the same command again to go on where it stopped."
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}  # a disk that takes no more, which is no bug


# where each command is defined; in the order of the help
_COMMANDS: Final = {
    "calibrate": ".cli.calibrate",
    "evaluate": ".cli.evaluate",
    "compare": ".cli.compare",
    "monitor": ".cli.monitor",
    "apply": ".cli.apply",
    "export": ".cli.export",
    "plan": ".cli.plan",
    "audit": ".cli.audit",
    "methods": ".cli.methods",
    "train": ".cli.train",
    "demo": ".cli.demo",
    "verify": ".cli.evidence",
    "submit": ".cli.submit",
    "budget": ".cli.submit",
    "jobs": ".cli.jobs",
    "status": ".cli.jobs",
    "stop": ".cli.jobs",
    "simulate": ".cli.submit",
}
_GROUPS: Final = {
    "ledger": ".cli.ledger",
    "certs": ".cli.certs",
    "server": ".cli.server",
    "site": ".cli.site",
}


def _needed(argv: Sequence[str]) -> str | None:
    """The only command that has to be loaded; None where all are, for help, completion or a file of flags."""
    first = next(iter(argv), "")
    alone = (first in _COMMANDS or first in _GROUPS) and stated(argv, "--config") is None and not Path(USUAL).is_file()
    return first if alone and not any(name.endswith("_COMPLETE") for name in os.environ) else None


def build(only: str | None = None) -> Any:
    """Put the commands together, or one of them: loading all takes longer than most of them run."""
    app = typer.Typer(
        name="fedcalib",
        help="Calibrated, trustworthy probabilities from data that cannot be pooled.",
        epilog="Exit codes: 0 fine, 1 our bug, 2 usage or bad input, 3 budget refused, 4 policy or cohort refused, "
        "5 server unavailable.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    for name, module in _COMMANDS.items():
        if only in (None, name):
            app.command()(Registered(name, module, "function").load())
    for name, module in _GROUPS.items():
        if only in (None, name):
            app.add_typer(Registered("app", module, "function").load(), name=name)
    app.callback()(_general)
    group = typer.main.get_command(app)
    for told in app.registered_commands:
        _explain(group, told.callback)
    _name_variables(group, _ENVIRONMENT["auto_envvar_prefix"])
    return group


def _name_variables(command: Any, prefix: str) -> None:
    """Name environment variables after flags, and not after parameters; one sentence of the documentation lists all."""
    for parameter in command.params:
        parameter.show_envvar = False
        if not parameter.envvar and (parameter.name or "").endswith("_"):
            parameter.envvar = f"{prefix}_{parameter.name.rstrip('_').upper()}"
    for name, inner in getattr(command, "commands", {}).items():
        _name_variables(inner, f"{prefix}_{name.upper().replace('-', '_')}")


def _explain(group: Any, function: Any) -> None:
    """Put the help of arguments back: typer before 0.26 loses it with the newest click."""
    told = signature(function, eval_str=True).parameters
    for parameter in group.commands[function.__name__].params:
        if getattr(parameter, "help", "") is None and parameter.name in told:
            parameter.help = next(
                (one.help for one in getattr(told[parameter.name].annotation, "__metadata__", ())), None
            )


def run(argv: Sequence[str]) -> int:
    """Run a command and say with which exit code it ends."""
    told: dict[str, dict[str, Any]] = {}
    try:
        group = build(_needed(argv))
        told.update(defaults(argv, {name: _flags(command) for name, command in group.commands.items()}))
        with warnings.catch_warnings(), needs("run this command"), noted(shlex.join(["fedcalib", *argv])):
            if "--debug" not in argv:
                warnings.simplefilter("ignore")  # what a user has to know is said in words of our own
            code = group.main(list(argv), prog_name="fedcalib", standalone_mode=False, default_map=told, **_ENVIRONMENT)
        if code == exits.INTERRUPTED:  # which is how typer gives an interrupt back
            raise KeyboardInterrupt
        return code if isinstance(code, int) else exits.FINE
    except (typer.Abort, KeyboardInterrupt):
        return _end(argv, told, _INTERRUPTED, exits.INTERRUPTED)
    except _USAGE as error:
        once = re.sub(r"( Did you mean [^?]*\?)\1+", r"\1", error.format_message())  # typer and click say it both
        return _end(argv, told, once, exits.USAGE)
    except FedcalibError as error:
        return _end(argv, told, exits.as_flags(str(error)), exits.exit_code(error))
    except SystemExit as left:  # typer leaves like this after a completion, and where nobody reads the output any more
        return exits.UNREAD if isinstance(left.__context__, BrokenPipeError) else int(left.code or exits.FINE)
    except Exception as error:
        return _end(argv, told, *_unexpected(error))


def _unexpected(error: Exception) -> tuple[str, int]:
    """What is said about an error that nobody raised on purpose, and its exit code."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return (
            f"Expected to write the output, found: {error.strerror}. Make room, and run the command again.",
            exits.USAGE,
        )
    what = f"This is a bug in fedcalib ({type(error).__name__}: {error}). Add --debug to see where, and report it."
    return what, exits.BUG


def _flags(command: Any) -> dict[str, str]:
    """Which parameter each flag of a command sets."""
    return {max(parameter.opts, key=len).lstrip("-"): str(parameter.name) for parameter in command.params}


def _end(argv: Sequence[str], told: Mapping[str, Mapping[str, Any]], message: str, code: int) -> int:
    """Print why a command ends, as JSON too where JSON was asked for."""
    configured = next((told[word] for word in argv if word in told), {})
    if "--debug" in argv or configured.get("debug"):
        traceback.print_exc()
    with suppress(OSError):  # a stream that takes nothing any more changes no exit code
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
