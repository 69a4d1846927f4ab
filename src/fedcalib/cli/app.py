"""`fedcalib methods`: what can be chosen.

`fedcalib demo`: the whole story on real patients, or on real flights.

Flags that stand in a file: `fedcalib.toml` here, or the one that --config names.

The commands put together, and the one place where errors become messages and exit codes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from enum import StrEnum
from inspect import signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final

import typer
from typer import Argument, Option

from fedcalib import files
from fedcalib.cli import options
from fedcalib.cli import voice as exits
from fedcalib.cli.voice import Voice
from fedcalib.errors import FedcalibError, InputError, needs
from fedcalib.registry import Registered, choices
from fedcalib.workflows import documents
from fedcalib.workflows.documents import SCHEMA_VERSION, TextTable
from fedcalib.workflows.facts import command as noted


def methods(
    format_: options.Shape = options.Format.TEXT, config: options.Config = None, debug: options.Debug = False
) -> None:
    """List the methods and privacy models that --method and --privacy can name."""
    lists = {"methods": choices("method"), "privacy": choices("privacy")}
    document = {name: [_entry(entry) for entry in entries] for name, entries in lists.items()}
    tables = [
        TextTable(title, ("name", "what it does", "options"), tuple(_row(entry) for entry in lists[name]))
        for name, title in (("methods", "--method"), ("privacy", "--privacy"))
    ]
    Voice(format_ is options.Format.JSON).result(document, tables)


def _entry(entry: Registered) -> dict[str, Any]:
    plain = (bool, int, float, str, NoneType)
    known = {name: value if isinstance(value, plain) else type(value).__name__ for name, value in entry.options.items()}
    return {"name": entry.word, "class": entry.name, "summary": entry.summary, "options": known}


def _row(entry: Registered) -> tuple[str, ...]:
    known = (name if value is None else f"{name}={value}" for name, value in _entry(entry)["options"].items())
    return entry.word, entry.summary, ", ".join(known)


class Story(StrEnum):
    """What a demonstration is about."""

    HEARTS = "hearts"
    FLIGHTS = "flights"


def demo(
    story: Annotated[
        Story,
        Argument(help="hearts: four hospitals, in the core install. flights: sixteen airlines; needs the extra demo."),
    ] = Story.HEARTS,
    *,
    out: Annotated[Path, Option(help="Directory of the report.")] = Path("fedcalib-demo"),
    epsilon: Annotated[
        float | None,
        Option(
            help="Epsilon of differential privacy; hearts has none without it, and flights takes 1.", show_default=False
        ),
    ] = None,
    simulate: options.SimulateSeed = None,
    seed: options.OldSeed = None,
    format_: options.Shape = options.Format.TEXT,
    config: options.Config = None,
    debug: options.Debug = False,
) -> None:
    """Recalibrate a classifier across four hospitals or sixteen airlines, and write a report."""
    seeded = [] if simulate is None else ["--simulate-seed", str(simulate)]
    voice = Voice(format_ is options.Format.JSON)
    if story is Story.FLIGHTS:
        _flights(voice, out, ["--out", str(out), "--epsilon", str(epsilon or 1.0), *seeded])
    else:
        private = ["secagg"] if epsilon is None else ["distributed", "--epsilon", str(epsilon)]
        _hearts(voice, out, ["--privacy", *private, "--out", str(out), *seeded])


def _hearts(voice: Voice, out: Path, words: list[str]) -> None:
    """Run the command that a user would type, and show it."""
    from fedcalib.datasets import HEART_DISEASE

    file = out / HEART_DISEASE.name
    documents.check_folder(out, (file.name,))
    files.write(file, HEART_DISEASE.read_bytes())
    columns = ["--site", "hospital", "--label", "disease", "--score", "risk"]
    command = ["calibrate", str(file), *columns, "--method", "platt-scaling", *words, "--split-seed", "0"]
    voice.note(f"{_HEARTS}\n\n  fedcalib {shlex.join(command)}\n")
    code = run([*command, "--format", "json" if voice.as_json else "text"])
    if code != exits.FINE:
        raise typer.Exit(code)
    voice.note(f"The report is in {out / 'report.html'}; open it in a browser.")


def _flights(voice: Voice, out: Path, words: list[str]) -> None:
    from runpy import run_path

    from fedcalib.deploy.commands import bundled

    with redirect_stdout(sys.stderr if voice.as_json else sys.stdout):
        run_path(str(bundled("examples/flights_demo")), run_name="flights_demo")["main"](words)
    if voice.as_json:
        document = json.loads((out / "result.json").read_text(encoding="utf-8"))
        voice.result({name: value for name, value in document.items() if name != "schema_version"}, [])


USUAL: Final = "fedcalib.toml"
_ENVIRONMENT: Final = {"auto_envvar_prefix": "FEDCALIB"}  # `fedcalib site start --data`: FEDCALIB_SITE_START_DATA


def stated(argv: Sequence[str], flag: str) -> str | None:
    """Find a flag's value before anything is parsed, in either of its two spellings."""
    for index, word in enumerate(argv):
        if word == flag and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def defaults(argv: Sequence[str], commands: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Any]]:
    """Read the flags of every command from the file: those at the top hold for all, a table's for its command.

    `commands` says, for each command, which parameter each of its flags sets.
    """
    named = stated(argv, "--config")
    path = Path(USUAL if named is None else named)
    if named is None and not path.is_file():
        return {}
    content = _parsed(path)
    tables = {name: table for name, table in content.items() if isinstance(table, dict)}
    common = {name: value for name, value in content.items() if name not in tables}
    _check(common, {flag for flags in commands.values() for flag in flags}, str(path))
    for name, table in tables.items():
        if name not in commands:
            raise InputError(f"Expected a command's name, found the table [{name}] in {path}; try {_list(commands)}.")
        _check(table, set(commands[name]), f"[{name}] of {path}")
    return {
        name: {flags[flag]: value for flag, value in {**common, **tables.get(name, {})}.items() if flag in flags}
        for name, flags in commands.items()
    }


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Expected to read {path}, found: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"Expected TOML in {path}, found: {error}.") from error


def _check(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for name, value in table.items():
        if name not in known or name == "config":
            raise InputError(f"Expected flags of fedcalib in {where}, found '{name}'; try {_list(known - {'config'})}.")
        if isinstance(value, dict):
            raise InputError(f"Expected a value for '{name}' in {where}, found a table.")


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


_HEARTS = (
    "Four hospitals, 920 patients, and a model of heart disease that was trained in Cleveland. They recalibrate it "
    "together, and nobody sees the records or sums of a single hospital:"
)
# the base of all errors of use: click's own, or that of the click inside typer from 0.26 on
_USAGE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
_INTERRUPTED = "Interrupted. Run the same command again to go on where it stopped."


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
    "methods": ".cli.app",
    "train": ".cli.train",
    "demo": ".cli.app",
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
    except Exception as error:
        what = f"This is a bug in fedcalib ({type(error).__name__}: {error}). Add --debug to see where, and report it."
        return _end(argv, told, what, exits.BUG)


def _flags(command: Any) -> dict[str, str]:
    """Which parameter each flag of a command sets."""
    return {max(parameter.opts, key=len).lstrip("-"): str(parameter.name) for parameter in command.params}


def _end(argv: Sequence[str], told: Mapping[str, Mapping[str, Any]], message: str, code: int) -> int:
    """Print why a command ends, as JSON too where JSON was asked for."""
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
