"""`fedcalib jobs`, `status` and `stop`: what was submitted to a server, how far it is, and an end to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from fedcalib.cli import options
from fedcalib.cli.voice import Voice
from fedcalib.deploy import commands as deployment
from fedcalib.deploy.control import Control
from fedcalib.deploy.runs import Run, all_runs, find_run
from fedcalib.workflows.documents import TextTable

Number = Annotated[int, Argument(help="Number of the run, as `fedcalib submit` and `fedcalib jobs` show it.")]
State = Annotated[Path, Option(help="Private folder of the server.")]


def jobs(*, state: State = Path("server-state"), format_: options.Shape = options.Format.TEXT) -> None:
    """List the runs of all jobs of a server: who submitted them, when, and how they ended."""
    found = [_facts(run) for run in all_runs(state)]
    rows = tuple(tuple(str(value) for value in one.values()) for one in found)
    columns = ("run", "job", "method", "privacy", "by", "at", "state")
    Voice(format_ is options.Format.JSON).result({"runs": found}, [TextTable("Jobs", columns, rows)])


def status(run: Number, *, state: State = Path("server-state"), format_: options.Shape = options.Format.TEXT) -> None:
    """Show how far a run is, or how it ended."""
    found = find_run(state, run)
    lines, result = found.progress(), found.result or {}
    facts = {**_facts(found), "folder": str(found.folder), "error": result.get("error")}
    rows = tuple((str(line["time"]), notice(line)) for line in lines)
    tables = [TextTable("Progress", ("time", "stage"), rows)]
    named = tuple((name, str(value)) for name, value in facts.items() if value is not None)
    Voice(format_ is options.Format.JSON).result(
        {**facts, "progress": lines}, [*tables, TextTable("Run", ("", ""), named)]
    )


def stop(
    run: Number,
    *,
    keys: Annotated[Path | None, Option(help="Folder that `fedcalib certs` made.")] = None,
    host: Annotated[str, Option(help="Address of the server.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port of the server.")] = 8000,
    insecure: Annotated[bool, Option("--insecure", help="No TLS and no node authentication.")] = False,
) -> None:
    """Stop a run; what sites have answered stays answered and paid, and the same job goes on from there."""
    folder = deployment.check_keys(keys, insecure)
    link = deployment.Link(host, port, None if folder is None else folder / "ca.crt")
    stopped = Control(link).stop(run)
    Voice(False).note(f"Stopped run {run}." if stopped else f"Run {run} was over.")


def _facts(run: Run) -> dict[str, Any]:
    job = json.loads(run.job)
    told = {"run": run.number, "job": job["name"] or run.folder.parents[1].name[:8]}
    return {**told, "method": job["method"], "privacy": job["privacy"], "by": run.by, "at": run.at, "state": run.state}


def notice(line: dict[str, Any]) -> str:
    """A line of progress in words."""
    lost = "; ".join(f"{site} {why}" for site, why in line["lost"].items())
    count = f", {line['answered']} of {line['asked']} sites answered" if line["asked"] else ""
    left = "" if line.get("epsilon_left") is None else f", epsilon left: {line['epsilon_left']:g}"
    return f"{line['stage']}{count}{left}" + (f" (lost: {lost})" if lost else "")
