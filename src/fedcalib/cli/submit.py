"""`fedcalib simulate`: rehearse a federation on Flower's simulation engine, on one machine.

`fedcalib submit`: hand a job to a running server, watch it, and say how it ended.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Option

from fedcalib import errors, registry
from fedcalib.cli import options
from fedcalib.cli.voice import Voice
from fedcalib.data import Columns, expand, read_checked
from fedcalib.deploy import commands as deployment
from fedcalib.deploy.commands import call, check_keys
from fedcalib.deploy.job import Job
from fedcalib.errors import FedcalibError, InputError
from fedcalib.loop import Result, run
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


_PULSE: Final = 0.5


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
    voice = Voice(format_ is options.Format.JSON)
    asked = Job.read(job)
    folder = check_keys(keys, insecure)
    known = directory or (folder / "directory.json" if folder else None)
    if known is None:
        raise InputError("Expected --directory FILE with the sites' identity keys, found none.")
    link = deployment.Link(host, port, None if folder is None else folder / "ca.crt")
    places = {"directory": known, "state": state / "jobs", "out": out}
    whole = {name: str(path.resolve()) for name, path in places.items()}
    command = deployment.submit(link, asked, whole, state / "operator")
    if show:
        print(command)
        return
    deployment.await_server(link)
    voice.note(str(command))
    (out / "result.json").unlink(missing_ok=True)
    begun = _lines(out)
    call(command)
    _tell(voice, _watched(out, begun, wait, voice), out)


def _watched(out: Path, begun: int, wait: float, voice: Voice) -> dict[str, Any]:
    """Pass on what the server writes about its progress until there is a result."""
    deadline, seen = time.monotonic() + wait, begun
    while not (out / "result.json").exists():
        seen = _pass_on(out, seen, voice)
        if time.monotonic() > deadline:
            raise InputError(f"Expected a result within {wait:g} s, found none yet; look into {out} later.")
        time.sleep(_PULSE)
    _pass_on(out, seen, voice)
    document: dict[str, Any] = json.loads((out / "result.json").read_text(encoding="utf-8"))
    return document


def _pass_on(out: Path, seen: int, voice: Voice) -> int:
    if not (out / "progress.jsonl").exists():
        return seen
    lines = (out / "progress.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    for text in lines[seen:]:
        line = json.loads(text)
        lost = "; ".join(f"{site} {why}" for site, why in line["lost"].items())
        count = f", {line['answered']} of {line['asked']} sites answered" if line["asked"] else ""
        left = "" if line.get("epsilon_left") is None else f", epsilon left: {line['epsilon_left']:g}"
        voice.note(f"{line['stage']}{count}{left}" + (f" (lost: {lost})" if lost else ""))
    return len(lines)


def _lines(out: Path) -> int:
    path = out / "progress.jsonl"
    return len(path.read_text(encoding="utf-8").split("\n")) - 1 if path.exists() else 0


def _tell(voice: Voice, document: dict[str, Any], out: Path) -> None:
    if "error" in document:
        kind = getattr(errors, str(document.get("kind")), FedcalibError)
        raise kind(document["error"])
    spent = document["privacy"]
    written = tuple((name, str(out / document[name])) for name in ("artifact", "report") if name in document)
    voice.result(document, [TextTable("Done", ("", ""), (*written, ("privacy", spent["statement"])))])
