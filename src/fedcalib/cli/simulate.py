"""`fedcalib simulate`: rehearse a federation on Flower's simulation engine, on one machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Option

from fedcalib.cli import options, registry
from fedcalib.cli.voice import Table, Voice
from fedcalib.io import Columns, expand, read_checked
from fedcalib.loop import Result, run


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
    from fedcalib.runtimes.flower_simulation import simulate as simulated

    voice = Voice(format_ is options.Format.JSON)
    columns = Columns(score=score, logits=logits, probs=probs, label=label, site=site)
    federation = read_checked(expand(files), columns, seed=0).federation
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
    voice.result({"nodes": nodes, "privacy": asdict(result.privacy)}, [Table("Simulated", ("", ""), rows)])
