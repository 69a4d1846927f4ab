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
from fedcalib.remote.sites import Notice


def server_app() -> Any:
    """The server's Flower app; the run configuration names the job and the server's own files."""
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
                watch=progress_log(out / "progress.jsonl"),
            )
            serve(job, runtime, folder, out)
        except FedcalibError as error:
            _write(out, {"error": str(error), "kind": type(error).__name__})

    app.main()(main)
    return app


def serve(job: Job, runtime: Runtime, folder: Path, out: Path) -> Result[Any]:
    """Run a job, or continue it where it stopped, and write its result."""
    note, ledger = progress_log(out / "progress.jsonl"), Ledger(folder.parent / "ledger.db")

    def watch(progress: Progress) -> None:
        outcome = "recalled" if progress.recalled else "sent"
        left = ledger.account("default").epsilon_left if Path(ledger.path).exists() else None
        stage = f"step {progress.step + 1} of {progress.steps} {outcome}"
        note(Notice(stage, 0, 0, {}, None if left is None else float(left)))

    agreed = Agreement.of(job.build_method(), job.build_privacy(), job.participation(), runtime.schema)
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
    settings = {name: value for name, value in asdict(job).items() if value}
    write_all(out, replace(done, provenance={"fedcalib": __version__, **settings}).files())
    return {"artifact": "artifact.json", "report": "report.html"}


def progress_log(path: Path) -> Callable[[Notice], None]:
    """A function that appends notices to a file as JSON lines, for people and programs that watch."""

    def note(notice: Notice) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **notice.to_json()}
        append(path, json.dumps(line) + "\n")

    return note


def _write(out: Path, document: Mapping[str, Any]) -> None:
    save_text(out / "result.json", json.dumps({"schema_version": 1, **document}, indent=1) + "\n")
