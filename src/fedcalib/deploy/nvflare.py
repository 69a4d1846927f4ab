"""NVIDIA FLARE as the transport: a controller at its server, an executor at its clients; needs the extra `nvflare`.

An executor reads nothing about its site from the job, which comes from the server: see `fedcalib.deploy.engines`. Each
client is sent its own text and no other's. `write_flare_job` writes a job folder for FLARE's simulator, POC mode or a
real federation.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from fedcalib.deploy.engines import answer
from fedcalib.deploy.flower import progress_log, serve
from fedcalib.deploy.job import Job
from fedcalib.deploy.runs import JobFolder, reported
from fedcalib.errors import needs
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import read_directory
from fedcalib.remote.sites import Transport

with needs("run on NVIDIA FLARE"):
    from nvflare.apis.controller_spec import Task
    from nvflare.apis.executor import Executor
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.impl.controller import Controller
    from nvflare.apis.shareable import Shareable, make_reply

TASK: Final = "fedcalib"
_TASK_SECONDS: Final = 0.2  # between two looks of a client for tasks; two seconds are usual
_ACTION, _TEXT = "fedcalib_action", "fedcalib_text"


@final
class SiteExecutor(Executor):  # type: ignore[misc]
    """Answers the tasks of a site: one text for one text."""

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Answer a task; the site's policy decides, and its log keeps why."""
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        workspace = fl_ctx.get_engine().get_workspace()
        own = Path(workspace.get_site_config_dir())
        action, text = str(shareable.get(_ACTION)), str(shareable.get(_TEXT) or "")
        reply = Shareable()
        reply[_TEXT] = answer(str(fl_ctx.get_identity_name()), action, text, own)
        return reply


@final
@dataclass(frozen=True, eq=False)
class FlareTransport(Transport):
    """The clients of a FLARE job; each exchange is one task per client."""

    controller: Any
    context: Any

    def addresses(self) -> tuple[str, ...]:
        return tuple(sorted(str(client.name) for client in self.context.get_engine().get_clients()))

    def exchange(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        """Send each client its own task, and collect replies until all are there or time is up."""
        replies: dict[str, str] = {}
        done = threading.Semaphore(0)
        tasks = [self._task(action, address, text, timeout, (replies, done)) for address, text in texts.items()]
        for address, task in zip(texts, tasks, strict=True):
            self.controller.broadcast(task, self.context, targets=[address], min_responses=1)
        deadline = time.monotonic() + timeout
        for _ in tasks:
            if not done.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
                break
        for task in tasks:
            if task.completion_status is None:
                self.controller.cancel_task(task)
        return dict(replies)

    def _task(
        self, action: str, address: str, text: str, timeout: float, found: tuple[dict[str, str], threading.Semaphore]
    ) -> Any:
        replies, done = found

        def received(client_task: Any, fl_ctx: Any) -> None:
            result = client_task.result
            if result.get_return_code() == ReturnCode.OK and isinstance(result.get(_TEXT), str):
                replies[address] = result[_TEXT]
            done.release()

        asked = Shareable()
        asked[_ACTION], asked[_TEXT] = action, text
        return Task(TASK, asked, timeout=max(int(timeout), 1), result_received_cb=received)


class FlareController(Controller, ABC):  # type: ignore[misc]
    """A controller that has a transport to the clients of its job."""

    @abstractmethod
    def work(self, transport: Transport) -> None:
        """What the server does."""

    def start_controller(self, fl_ctx: Any) -> None:
        """Nothing has to be prepared."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Nothing has to be put away."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Do the work."""
        self.work(FlareTransport(self, fl_ctx))

    def process_result_of_unknown_task(self, client: Any, task_name: str, *_: Any) -> None:
        """Late replies are dropped: the question is sent again, and the site recalls its answer."""


@final
class JobController(FlareController):
    """Runs a job of fedcalib, and writes its result and its progress into a folder of the server.

    Parameters
    ----------
    job
        The job as `Job.pack` writes it.
    directory
        The file with the identity keys of all sites.
    state
        The server's private folder.
    """

    def __init__(self, job: str, directory: str, state: str) -> None:
        super().__init__()
        self.job, self.directory, self.state = job, directory, state

    def work(self, transport: Transport) -> None:
        job = Job.unpack(self.job)
        folder = JobFolder.of(Path(self.state), job)
        out = folder.path / "flare"
        out.mkdir(parents=True, exist_ok=True)
        with reported(out):
            watch = progress_log(out / "progress.jsonl")
            told = (read_directory(Path(self.directory)), folder.path, job.sites, job.timeout, 1, watch, job.schema)
            serve(job, Remote(transport, *told), folder.path, out)


def write_flare_job(folder: Path, controller: Mapping[str, Any], name: str = "fedcalib") -> Path:
    """Write a FLARE job: its controller with arguments, and the executor, which has none.

    Parameters
    ----------
    folder
        The folder of the job.
    controller
        Its class by `path` and its `args`, as FLARE's configurations name components.
    name
        The name of the job.
    """
    config = folder / "app" / "config"
    config.mkdir(parents=True, exist_ok=True)
    meta = {"name": name, "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["@ALL"]}}
    pace = {"server": {"task_request_interval": _TASK_SECONDS}}
    server = {"format_version": 2, **pace, "workflows": [{"id": "fedcalib", **controller}], "components": []}
    executor = {"path": f"{__name__}.SiteExecutor", "args": {}}
    client = {"format_version": 2, "executors": [{"tasks": [TASK], "executor": executor}], "components": []}
    for path, content in (
        (folder / "meta.json", meta),
        (config / "config_fed_server.json", server),
        (config / "config_fed_client.json", client),
    ):
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return folder
