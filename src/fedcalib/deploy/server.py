"""The server of a deployed federation: a Flower ServerApp that runs one job and can be killed at any time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
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
from fedcalib.loop import Progress, Result, Runtime, run
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

    result = run(
        job.asked(),
        runtime,
        job.model(),
        participation=job.participation(),
        transcript=folder / "transcript.jsonl",
        ledger=ledger,
        watch=watch,
    )
    _write(out, {"job": asdict(job), "privacy": asdict(result.privacy), **_files(job, result, out)})
    return result


def _files(job: Job, result: Result[Any], out: Path) -> dict[str, str]:
    """Save what came of it: the artifact, and of a measured calibrator also the report."""
    if not isinstance(result.artifact, Fitted):
        return {"artifact": result.artifact.save(out / "artifact.json", result.privacy).name}
    result.artifact.calibrator.save(out / "artifact.json", result.privacy)
    write_all(out, _report(job, result))
    return {"artifact": "artifact.json", "report": "report.html"}


def _report(job: Job, result: Result[Any]) -> dict[str, bytes]:
    from fedcalib.workflows.reports import ReportInput, files

    fitted, private = result.artifact, job.model().private
    story = ReportInput(
        title=f"{job.method} over {job.sites} sites",
        summary=("Measured on the records that were fitted, which flatters a little.",),
        spent=result.privacy,
        private=private,
        counts={"sites": None if private else job.sites, "records": None},
        before=fitted.before,
        after=fitted.after,
        warnings=(*fitted.before.warnings, *fitted.after.warnings),
        provenance={"fedcalib": __version__, **{name: value for name, value in asdict(job).items() if value}},
    )
    return files(story)


def teller(path: Path) -> Callable[[Event], None]:
    """Write events as JSON lines, for people and programs that watch."""

    def tell(event: Event) -> None:
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **event.to_json()}
        append(path, json.dumps(line) + "\n")

    return tell


def _write(out: Path, document: Mapping[str, Any]) -> None:
    save_text(out / "result.json", json.dumps({"schema_version": 1, **document}, indent=1) + "\n")
