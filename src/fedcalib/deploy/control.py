"""What an operator does at a Flower server, over Flower's own client of its Control API: admit sites, start, stop runs.

Flower's command line does the same with one process per call, and ends with 0 where a call failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, final

from fedcalib.deploy.commands import Link, bundled, require_flower
from fedcalib.deploy.fleet import unreachable
from fedcalib.errors import InputError, UnavailableError

_SHUT_OUT: Final = "unregistered"  # Flower's status of a node


@final
@dataclass(frozen=True)
class RunStatus:
    """What Flower says about a run: its status, how it ended, and why."""

    status: str
    ended: str
    details: str

    @property
    def over(self) -> bool:
        return self.status == "finished"


@final
@dataclass(frozen=True)
class Control:
    """A server's Control API."""

    link: Link

    def start(self, config: Mapping[str, str], app: Path | None = None) -> int:
        """Start a run of our app, or of another one, and return its number."""
        from flwr.cli.build import build_fab_from_disk
        from flwr.common.serde import fab_to_proto, user_config_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        content = build_fab_from_disk(app or bundled("flower-app"))
        fab = fab_to_proto(Fab(sha256(content).hexdigest(), content, {}))
        request = StartRunRequest(fab=fab, override_config=user_config_to_proto(dict(config)))
        with self._client() as client:
            response = client.StartRun(request)
        if not response.HasField("run_id"):
            raise UnavailableError(
                f"The server at {self.link.address} did not start the run: {response.note or 'no reason'}."
            )
        return int(response.run_id)

    def run(self, number: int) -> RunStatus:
        """The status of a run."""
        from flwr.proto.control_pb2 import ListRunsRequest

        with self._client() as client:
            found = client.ListRuns(ListRunsRequest(run_id=number)).run_dict
        if number not in found:
            raise UnavailableError(f"The server at {self.link.address} does not know the run {number}.")
        status = found[number].status
        return RunStatus(status.status, status.sub_status, status.details)

    def stop(self, number: int) -> bool:
        """Stop a run; False where it was over."""
        from flwr.proto.control_pb2 import StopRunRequest

        with self._client() as client:
            return bool(client.StopRun(StopRunRequest(run_id=number)).success)

    def admit(self, site: str, public: Path) -> bool:
        """Let a site in by its public node key, and no longer by one that it had; False where it was let in before."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        key = _public_key(public)
        if key in {node.public_key for node in self._nodes()}:
            return False
        self.revoke(site)
        with self._client() as client:
            client.RegisterNode(RegisterNodeRequest(public_key=key, name=site))
        return True

    def revoke(self, site: str) -> int:
        """Shut a site out: its nodes are no longer known; returns how many there were."""
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        numbers = [node.node_id for node in self._nodes() if node.name == site]
        for number in numbers:
            with self._client() as client:
                client.UnregisterNode(UnregisterNodeRequest(node_id=number))
        return len(numbers)

    def names(self) -> dict[str, str]:
        """The names of the sites that were admitted, by the numbers of their nodes."""
        return {str(node.node_id): node.name for node in self._nodes() if node.name}

    def _nodes(self) -> list[Any]:
        """The nodes that may connect; Flower goes on listing those that were shut out."""
        from flwr.proto.control_pb2 import ListNodesRequest

        with self._client() as client:
            listed = client.ListNodes(ListNodesRequest()).nodes_info
        return [node for node in listed if node.status != _SHUT_OUT]

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """A connection for one call; its errors say what to do."""
        require_flower()
        import httpx
        from flwr.supercore.control import ControlHttpClient
        from flwr.supercore.error import FlowerError
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

        insecure, authority = (
            self.link.authority is None,
            None if self.link.authority is None else str(self.link.authority),
        )
        version = RuntimeVersionHttpInterceptor("flwr CLI")
        try:
            with ControlHttpClient.from_server_address(self.link.address, insecure, authority, [version]) as client:
                yield client
        except httpx.HTTPStatusError as error:
            told = FlowerError.from_json(error.response.text)
            why = error.response.text[:200] if told is None else f"{told.message} {told.public_details or ''}".strip()
            raise UnavailableError(f"The server at {self.link.address} refused: {why}") from error
        except httpx.TransportError as error:
            raise UnavailableError(unreachable(self.link, error)) from error
        except OSError as error:  # SSL errors are of this kind
            raise InputError(f"Expected a certificate in {self.link.authority}, found: {error}.") from error


def _public_key(path: Path) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        return bytes(public_key_to_bytes(load_ssh_public_key(path.read_bytes())))
    except OSError as error:
        raise InputError(
            f"Expected the file {path}, found: {error.strerror or error}; see `fedcalib certs`."
        ) from error
    except (ValueError, TypeError, AttributeError, UnsupportedAlgorithm) as error:
        raise InputError(f"Expected a node's public key in {path}, found something else.") from error
