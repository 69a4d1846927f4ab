"""The server of a deployed federation: a Flower ServerApp that runs one job and can be killed at any time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedcalib import __version__
from fedcalib.accounting.ledger import Ledger
from fedcalib.artifacts.evaluation import Fitted
from fedcalib.deploy.flower import Flower
from fedcalib.deploy.job import Job
from fedcalib.errors import FedcalibError
from fedcalib.files import append, save_text, write_all
from fedcalib.loop import Agreement, Progress, Result, Runtime, conduct
from fedcalib.remote.config import read_directory
from fedcalib.remote.sites import Event


def server_app() -> Any:
    """Make the server's app; the run configuration names the job and the server's own files."""
    from flwr.serverapp import ServerApp

    app = ServerApp()

    def main(grid: Any, context: Any) -> None:
        config = context.run_config
        out = Path(str(config["out"]))
        try:
            job = Job.unpack(str(config["job"]))
            folder = Path(str(config["state"])) / job.key
            runtime = Flower(
                grid,
                read_directory(Path(str(config["directory"]))),
                folder,
                job.sites,
                job.timeout,
                watch=teller(out / "progress.jsonl"),
            )
            serve(job, runtime, folder, out)
        except FedcalibError as error:
            _write(out, {"error": str(error), "kind": type(error).__name__})

    app.main()(main)
    return app


def serve(job: Job, runtime: Runtime, folder: Path, out: Path) -> Result[Any]:
    """Run a job to its end, or go on where it stopped, and write down what came of it."""
    tell, ledger = teller(out / "progress.jsonl"), Ledger(folder.parent / "ledger.db")

    def watch(progress: Progress) -> None:
        said = "recalled" if progress.recalled else "asked"
        left = ledger.account("default").epsilon_left if Path(ledger.path).exists() else None
        stage = f"step {progress.step + 1} of {progress.steps} {said}"
        tell(Event(stage, 0, 0, {}, None if left is None else float(left)))

    agreed = Agreement.of(job.asked(), job.model(), job.participation(), runtime.schema)
    result = conduct(agreed, runtime, transcript=folder / "transcript.jsonl", ledger=ledger, watch=watch)
    saved = _measured(job, agreed, result, out) if job.measure else _artifact(result, out)
    _write(out, {"job": asdict(job), "privacy": asdict(result.privacy), **saved})
    return result


def _artifact(result: Result[Any], out: Path) -> dict[str, str]:
    return {"artifact": result.artifact.save(out / "artifact.json", result.privacy).name}


def _measured(job: Job, agreed: Agreement[Fitted], result: Result[Fitted], out: Path) -> dict[str, str]:
    """Save a calibrator that was measured, and its report."""
    from fedcalib.workflows.calibration import CalibrationResult
    from fedcalib.workflows.session import Phase

    done = CalibrationResult.at_sites(Phase("calibration", agreed), result, replayed=False)
    done.calibrator.save(out / "artifact.json", done.privacy)
    told = {name: value for name, value in asdict(job).items() if value}
    write_all(out, replace(done, provenance={"fedcalib": __version__, **told}).files())
    return {"artifact": "artifact.json", "report": "report.html"}


def teller(path: Path) -> Callable[[Event], None]:
    """Write events as JSON lines, for people and programs that watch."""

    def tell(event: Event) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **event.to_json()}
        append(path, json.dumps(line) + "\n")

    return tell


def _write(out: Path, document: Mapping[str, Any]) -> None:
    save_text(out / "result.json", json.dumps({"schema_version": 1, **document}, indent=1) + "\n")
