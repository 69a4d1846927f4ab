"""vantage6 as the transport: an algorithm with a function for sites and one for the server; needs the extra `vantage6`.

`answer` runs in a container at a site, `run_job` in one at the organization that asks. A site's settings are in the
folder that the environment variable FEDCALIB_SITES of its node names (`algorithm_env` in the node's configuration). It
has to be mounted, with the site's state, into the containers: see `fedcalib.deploy.engines`. Nothing is read from a
task but an action and a text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

from fedcalib import wire
from fedcalib.deploy.engines import answer as answer_of
from fedcalib.deploy.job import Job
from fedcalib.errors import needs
from fedcalib.remote.runtime import Remote
from fedcalib.remote.site import read_directory
from fedcalib.remote.sites import Transport
from fedcalib.runtimes import run

with needs("run on vantage6"):
    from vantage6.algorithm.tools.decorators import algorithm_client

_POLL_SECONDS: Final = 0.5


@algorithm_client  # type: ignore[untyped-decorator]
def answer(client: Any, action: str, text: str) -> dict[str, str]:
    """The reply of this site to one message."""
    return {"text": answer_of(str(client.organization_id), str(action), str(text))}


@algorithm_client  # type: ignore[untyped-decorator]
def run_job(client: Any, job: str, directory: str, organizations: Mapping[str, int]) -> dict[str, Any]:
    """Run a job on the sites of some organizations, and return its artifact and its privacy statement.

    Parameters
    ----------
    client
        The client that vantage6 passes.
    job
        The job as `Job.pack` writes it.
    directory
        The file with the identity keys of all sites.
    organizations
        The numbers of the organizations, by the names of their sites.
    """
    wanted = Job.unpack(job)
    transport = VantageTransport(client, dict(organizations))
    told = (read_directory(Path(directory)), None, wanted.sites, wanted.timeout, 1, None, wanted.schema)
    result = run(wanted.build_method(), Remote(transport, *told), wanted.build_privacy())
    return {"artifact": wire.dumps(result.artifact), "privacy": asdict(result.privacy)}


@final
@dataclass(frozen=True, eq=False)
class VantageTransport(Transport):
    """The organizations of a collaboration; each exchange is one task per organization, with its own text."""

    client: Any
    organizations: Mapping[str, int]

    def addresses(self) -> tuple[str, ...]:
        return tuple(sorted(self.organizations))

    def exchange(self, action: str, texts: Mapping[str, str], timeout: float) -> dict[str, str]:
        """Make all tasks, and collect results until all are there or time is up."""
        tasks = {address: self._task(action, address, text) for address, text in texts.items()}
        deadline, replies = time.monotonic() + timeout, dict[str, str]()
        while True:
            replies |= {
                address: reply
                for address, task in tasks.items()
                if address not in replies and (reply := self._reply(task)) is not None
            }
            if len(replies) == len(tasks) or time.monotonic() > deadline:
                return replies
            time.sleep(_POLL_SECONDS)

    def _task(self, action: str, address: str, text: str) -> int:
        made = self.client.task.create(
            input_={"method": "answer", "kwargs": {"action": action, "text": text}},
            organizations=[self.organizations[address]],
            name=f"fedcalib {action}",
        )
        return int(made["id"])

    def _reply(self, task: int) -> str | None:
        """The text that a task has returned; None where it is not done, or has failed."""
        found = self.client.result.from_task(task)
        one = found[0] if found else None
        text = one.get("text") if isinstance(one, Mapping) else None
        return text if isinstance(text, str) else None
