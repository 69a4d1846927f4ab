"""`fedcalib simulate`: rehearse a federation on Flower's simulation engine, on one machine.

`fedcalib submit`: hand a job to a running server, watch it, and say how it ended.

`fedcalib budget`: ask the sites about a job without running it.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from fedcalib import registry
from fedcalib.cli import options
from fedcalib.cli import voice as exits
from fedcalib.cli.jobs import notice
from fedcalib.cli.voice import Voice
from fedcalib.data import Columns, expand, read_checked
from fedcalib.deploy import commands as deployment
from fedcalib.deploy.commands import check_keys
from fedcalib.deploy.control import Control
from fedcalib.deploy.job import Job
from fedcalib.deploy.runs import Follower, JobFolder, Run, error_of
from fedcalib.errors import InputError
from fedcalib.files import write_all
from fedcalib.loop import Result
from fedcalib.runtimes import run
from fedcalib.workflows.documents import TextTable


def simulate(
    files: options.Files,
    *,
    method: Annotated[str, Option(help="See `fedcalib methods`.")],
    nodes: Annotated[int, Option(help="Virtual nodes; each holds some of the sites.")] = 4,
    cpus: Annotated[int, Option(help="Processes at a time.")] = 1,
    privacy: options.Model = "secagg",
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    clip: options.Clip = None,
    out: Annotated[Path | None, Option(help="File for the calibrator.")] = None,
    label: options.Label = "label",
    site: options.Site = None,
    score: options.Score = None,
    logits: options.Logits = None,
    probs: options.Probs = None,
    format_: options.Shape = options.Format.TEXT,
) -> None:
    """Run a method over Flower's simulation engine: real messages and processes, slower than `calibrate`."""
    from fedcalib.deploy.flower import simulate as simulated

    voice = Voice(format_ is options.Format.JSON)
    columns = Columns(score=score, logits=logits, probs=probs, label=label, site=site)
    federation = read_checked(expand(files), columns).federation
    model = registry.privacy(privacy, {"epsilon": epsilon, "delta": delta, "clip": clip})
    asked = registry.method(method, {})
    result: Result[object] = simulated(
        federation,
        nodes,
        lambda flower: run(asked, flower, model),
        cpus=cpus,
        watch=lambda event: voice.note(f"{event.stage}, {event.answered} of {event.asked} nodes answered"),
    )
    if out is not None:
        result.artifact.save(out, result.privacy)  # type: ignore[attr-defined]
    rows = (("nodes", str(nodes)), ("saved", str(out or "-")), ("privacy", result.privacy.statement))
    voice.result({"nodes": nodes, "privacy": asdict(result.privacy)}, [TextTable("Simulated", ("", ""), rows)])


def submit(
    job: Path,
    *,
    out: Annotated[Path, Option(help="Folder of the results.")],
    keys: Annotated[Path | None, Option(help="Folder that `fedcalib certs` made.")] = None,
    host: Annotated[str, Option(help="Address of the server.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port of the server.")] = 8000,
    state: Annotated[Path, Option(help="Private folder of the server.")] = Path("server-state"),
    directory: Annotated[Path | None, Option(help="The sites' identity keys; usually in the folder of keys.")] = None,
    wait: Annotated[float, Option(help="Seconds to wait for the result.")] = 3600.0,
    insecure: Annotated[bool, Option("--insecure", help="No TLS and no node authentication.")] = False,
    show: Annotated[bool, Option("--print", help="Print the Flower command and stop.")] = False,
    format_: options.Shape = options.Format.TEXT,
) -> None:
    """Run a job on the sites of a federation; run it again to go on where it stopped. Runs where the server runs."""
    asked = Job.read(job)
    link, known = _server(keys, host, port, directory, insecure)
    places = {"directory": str(known.resolve()), "state": str((state / "jobs").resolve())}
    if show:
        print(deployment.submit(link, asked, places, state / "operator"))
        return
    deployment.await_server(link)
    voice, control = Voice(format_ is options.Format.JSON), Control(link)
    run, new = JobFolder.of(state.resolve(), asked).submit(asked, control, places)
    by = "" if new else f", which {run.by} submitted at {run.at} and is under way"
    voice.note(f"Run {run.number}{by}; stop it with `fedcalib stop {run.number}`.")
    try:
        document = Follower(run, control, lambda line: voice.note(notice(line))).wait(wait)
    except KeyboardInterrupt:
        voice.note(f"Run {run.number} goes on; see `fedcalib status {run.number}` and `fedcalib stop {run.number}`.")
        raise
    _take(run, document, out, voice)


def budget(
    job: Path,
    *,
    keys: Annotated[Path | None, Option(help="Folder that `fedcalib certs` made.")] = None,
    host: Annotated[str, Option(help="Address of the server.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port of the server.")] = 8000,
    state: Annotated[Path, Option(help="Private folder of the server.")] = Path("server-state"),
    directory: Annotated[Path | None, Option(help="The sites' identity keys; usually in the folder of keys.")] = None,
    wait: Annotated[float, Option(help="Seconds to wait for the sites.")] = 600.0,
    insecure: Annotated[bool, Option("--insecure", help="No TLS and no node authentication.")] = False,
    format_: options.Shape = options.Format.TEXT,
) -> None:
    """Ask all sites whether they could take part in a job, and what is left of their budgets; nothing is spent.

    A site tells what its policy allows (tell_budget). Ends with exit code 4 where a site could not take part.
    """
    asked = Job.read(job)
    link, known = _server(keys, host, port, directory, insecure)
    places = {"directory": str(known.resolve()), "state": str((state / "inquiries").resolve()), "inquire": "yes"}
    deployment.await_server(link)
    voice, control = Voice(format_ is options.Format.JSON), Control(link)
    run, _ = JobFolder.of_inquiry(state.resolve(), asked).submit(asked, control, places)
    document = Follower(run, control, lambda _: None).wait(wait)
    if error := error_of(document):
        raise error
    rows = tuple((site, *_told(one)) for site, one in document["sites"].items())
    voice.result({"sites": document["sites"]}, [TextTable("Sites", ("", "could take part", "epsilon left", ""), rows)])
    if not all(one["could"] for one in document["sites"].values()):
        raise typer.Exit(exits.REFUSED)


def _told(one: dict[str, Any]) -> tuple[str, str, str]:
    left = one["epsilon_left"]
    return "yes" if one["could"] else "NO", "not told" if left is None else f"{left:g}", one["why"]


def _server(
    keys: Path | None, host: str, port: int, directory: Path | None, insecure: bool
) -> tuple[deployment.Link, Path]:
    """Where the server is, and the file with the sites' identity keys."""
    folder = check_keys(keys, insecure)
    known = directory or (folder / "directory.json" if folder else None)
    if known is None:
        raise InputError("Expected --directory FILE with the sites' identity keys, found none.")
    return deployment.Link(host, port, None if folder is None else folder / "ca.crt"), known


def _take(run: Run, document: dict[str, Any], out: Path, voice: Voice) -> None:
    """Copy what a run wrote, and say how it ended."""
    written = [path for path in sorted(run.folder.iterdir()) if path.is_file() and path.name != "lock"]
    write_all(out, {path.name: path.read_bytes() for path in written})
    if error := error_of(document):
        raise error
    spent = document["privacy"]
    results = tuple((name, str(out / document[name])) for name in ("artifact", "report") if name in document)
    voice.result(document, [TextTable("Done", ("", ""), (*results, ("privacy", spent["statement"])))])
