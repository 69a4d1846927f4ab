"""A connection to a Flower server as one of its nodes, over Flower's own client of the Fleet API.

Tried with Flower 1.41 and 1.42, see `make e2e-flower`; `pyproject.toml` allows no other. Everything that Flower
does not promise to keep is in this file and in `control`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, final

from fedcalib import files
from fedcalib.deploy.commands import Link
from fedcalib.errors import InputError, UnavailableError

_RECORD: Final = "fedcalib"
_HEARTBEAT: Final = 10.0  # seconds: the shortest that Flower allows, so that a site that died is soon known to be gone
_PULLS: Final = {"initial_backoff": 0.05, "backoff_cap": 1.0, "max_time": 60.0}  # seconds
_DELIVERIES: Final = (0.0, 1.0, 3.0)  # seconds before each try to deliver a reply
_NOT_ACTIVATED: Final = 2004  # Flower's code for a node that is not known, or that it counts as connected already
_AHEAD, _BEHIND = 5.0, 300.0  # seconds by which Flower lets the clock of a node differ from the server's

T = TypeVar("T")


@final
@dataclass(frozen=True)
class NodeKey:
    """The key pair of a node, by which the server knows it."""

    private: Any
    public: Any
    generated: bool = False

    @classmethod
    def read(cls, path: Path | None) -> NodeKey:
        """The key in a file; without a file a new one, for servers that do not authenticate nodes."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key

        if path is None:
            fresh = ec.generate_private_key(ec.SECP384R1())
            return cls(fresh, fresh.public_key(), generated=True)
        try:
            key = load_ssh_private_key(path.read_bytes(), None)
        except OSError as error:
            raise InputError(f"Expected to read the node's key {path}, found: {error.strerror or error}.") from error
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise InputError(f"Expected a node's key in {path}, found something else; see `fedcalib certs`.") from error
        return cls(key, key.public_key())

    @property
    def public_bytes(self) -> bytes:
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        return bytes(public_key_to_bytes(self.public))


@final
@dataclass(eq=False)
class ServerClock:
    """Compares this clock with the server's, by the date that comes with every reply; exact to about two seconds."""

    ahead: float = 0.0

    def intercept(self, context: Any, call_next: Callable[[Any], Any]) -> Any:
        """Pass a request on, and note the date of its reply; the form is that of Flower's interceptors."""
        begun = time.time()
        response = call_next(context)
        with suppress(KeyError, ValueError, TypeError):
            told = parsedate_to_datetime(response.headers["date"]).timestamp() + 0.5  # dates are cut to whole seconds
            self.ahead = (begun + time.time()) / 2 - told
        return response

    @property
    def problem(self) -> str | None:
        """What is wrong with this machine's clock; None where the server accepts it."""
        if -_BEHIND < self.ahead < _AHEAD - 1:
            return None
        way = "ahead of" if self.ahead > 0 else "behind"
        return (
            f"This machine's clock is {abs(self.ahead):.0f} s {way} the server's, which allows {_AHEAD:.0f} s ahead "
            f"and {_BEHIND:.0f} s behind; set it, for example by NTP."
        )


@final
@dataclass(frozen=True, eq=False)
class Received:
    """A message of a server: what is asked, its text, its run, and Flower's own message, to reply to."""

    action: str
    text: str
    run: int
    head: Any


@final
@dataclass(eq=False)
class FleetConnection:
    """A node's place in the fleet of a server: messages come, replies go, and heartbeats keep the place."""

    client: Any
    clock: ServerClock
    node: Any
    lost: threading.Event = field(default_factory=threading.Event)

    @classmethod
    @contextmanager
    def opened(cls, link: Link, key: NodeKey, remembered: Path) -> Iterator[FleetConnection]:
        """Connect, and leave the fleet at the end.

        The number that the server gave to this node is kept in the file `remembered`. With it a node that was killed
        takes its place again at once, instead of waiting until the server has missed it.
        """
        clock = ServerClock()
        with _client(link, key, clock) as client, _explained(link, clock):
            node = _activated(client, key, remembered)
            connection = cls(client, clock, node)
            ended = threading.Event()
            beats = threading.Thread(target=connection._beat, args=(ended,), daemon=True)
            beats.start()
            try:
                yield connection
            finally:
                ended.set()
                _leave(client, node, key)

    def pull(self) -> Received | None:
        """The next message, if there is one."""
        from flwr.common.serde import message_from_proto
        from flwr.proto.fleet_pb2 import PullMessagesRequest

        if self.lost.is_set():
            raise UnavailableError("The server no longer counts this node as connected.")
        response = self.client.PullMessages(PullMessagesRequest(node=self.node))
        if not response.messages_list:
            return None
        head, tree = message_from_proto(response.messages_list[0]), response.message_object_trees[0]
        action, text = str(head.metadata.message_type).partition(".")[2], self._text(head.metadata.run_id, tree)
        return None if text is None else Received(action, text, head.metadata.run_id, head)

    def _text(self, run: int, tree: Any) -> str | None:
        """The text of a message: empty where it is none of ours, and None where it did not arrive as a whole."""
        import httpx
        from flwr.app import Message
        from flwr.supercore.inflatable import inflatable_protobuf_utils as objects
        from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, pull_and_inflate_object_from_tree

        pull = objects.make_pull_object_fn_protobuf(self.client.PullObject, self.node, run)
        confirm = objects.make_confirm_message_received_fn_protobuf(self.client.ConfirmMessageReceived, self.node, run)
        try:
            return text_of(pull_and_inflate_object_from_tree(tree, pull, confirm, return_type=Message)) or ""
        except ObjectPullError:  # the server sends it again
            return None
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.FORBIDDEN:
                raise
            return None  # the run is over
        except httpx.HTTPError:
            raise
        except Exception:  # whatever a server may send
            return ""

    def reply(self, received: Received, text: str) -> None:
        """Deliver a reply. It is the same text at every try, so a second delivery tells nothing more.

        A reply that cannot be delivered is dropped: the server sends its question again, and the site recalls.
        """
        import httpx

        for pause in _DELIVERIES:
            time.sleep(pause)
            try:
                self._push(received, text)
                return
            except httpx.TransportError:
                continue
            except httpx.HTTPStatusError as error:
                if error.response.status_code != httpx.codes.FORBIDDEN:  # the run is over, and nobody waits
                    raise
                return

    def _push(self, received: Received, text: str) -> None:
        from flwr.app import Message
        from flwr.app.message import remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.supercore.inflatable import inflatable_object
        from flwr.supercore.inflatable import inflatable_protobuf_utils as objects

        reply = Message(record_of(text), reply_to=received.head)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with inflatable_object.no_object_id_recompute():
            parts = inflatable_object.get_all_nested_objects(reply)
            request = PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[inflatable_object.get_object_tree(reply)],
                clientapp_runtime_list=[0.0],  # how long an answer took is nobody's business
            )
            pushed = self.client.PushMessages(request)
            push = objects.make_push_object_fn_protobuf(
                self.client.PushObject, self.node, received.run, pushed.session_id
            )
            for number in pushed.objects_to_push:
                push(number, parts[number].deflate())

    def _beat(self, ended: threading.Event) -> None:
        """Send heartbeats until the connection ends; one that the server does not know ends it."""
        import httpx
        from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest

        request = SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=_HEARTBEAT)
        while not ended.wait(_HEARTBEAT * 0.4):
            try:
                if not self.client.SendNodeHeartbeat(request).success:
                    self.lost.set()
            except (httpx.HTTPError, RuntimeError):  # what is wrong is told when the next message is pulled
                continue


def pull_quickly() -> None:
    """Make Flower look for the rest of a message after 50 milliseconds, in this process.

    A message is announced before its parts are there. Whoever looks in between would wait for a second, at most stages
    of a job, and for up to two hours where the sender has died.
    """
    from flwr.supercore.inflatable import inflatable_utils

    for function in (inflatable_utils.pull_objects, inflatable_utils.pull_and_inflate_object_from_tree):
        defaults = function.__kwdefaults__ or {}
        defaults.update({name: value for name, value in _PULLS.items() if name in defaults})


def record_of(text: str) -> Any:
    """A text as the content of a message of Flower."""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({_RECORD: ConfigRecord({"text": text.encode()})})


def text_of(message: Any) -> str | None:
    """The text of a message of Flower; None if it has none."""
    try:
        raw = message.content[_RECORD]["text"]
        return raw.decode() if isinstance(raw, bytes) else None
    except (KeyError, TypeError, ValueError):
        return None


def _client(link: Link, key: NodeKey, clock: ServerClock) -> Any:
    from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    version, signed = RuntimeVersionHttpInterceptor("SuperNode"), NodeAuthHttpInterceptor(key.private, key.public)
    insecure, authority = link.authority is None, None if link.authority is None else str(link.authority)
    try:
        return FleetHttpClient.from_server_address(link.address, insecure, authority, [version, signed, clock])
    except OSError as error:  # SSL errors are of this kind
        raise InputError(
            f"Expected a certificate in {link.authority}, found: {error}; see `fedcalib certs`."
        ) from error


def _activated(client: Any, key: NodeKey, remembered: Path) -> Any:
    """This node's number at the server, which counts it as connected from now on."""
    import httpx
    from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest, RegisterNodeFleetRequest
    from flwr.proto.node_pb2 import Node

    if key.generated:
        client.RegisterNode(RegisterNodeFleetRequest(public_key=key.public_bytes))
    activate = partial(
        client.ActivateNode, ActivateNodeRequest(public_key=key.public_bytes, heartbeat_interval=_HEARTBEAT)
    )
    try:
        number = activate().node_id
    except httpx.HTTPStatusError as error:
        before = _number(remembered)
        if _code(error) != _NOT_ACTIVATED or before is None:
            raise
        with suppress(httpx.HTTPStatusError):  # then it was not this node that is connected
            client.DeactivateNode(DeactivateNodeRequest(node_id=before))
        number = activate().node_id
    files.write(remembered, f"{number}\n".encode(), private=True)
    return Node(node_id=number)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _leave(client: Any, node: Any, key: NodeKey) -> None:
    import httpx
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest, UnregisterNodeFleetRequest

    with suppress(httpx.HTTPError, RuntimeError):
        client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))
        if key.generated:
            client.UnregisterNode(UnregisterNodeFleetRequest(node_id=node.node_id))


@contextmanager
def _explained(link: Link, clock: ServerClock) -> Iterator[None]:
    """Turn errors of the connection into one that says what to do."""
    import httpx

    try:
        yield
    except httpx.HTTPStatusError as error:
        raise UnavailableError(clock.problem or _refusal(error)) from error
    except httpx.TransportError as error:
        raise UnavailableError(unreachable(link, error)) from error


def _refusal(error: Any) -> str:
    if _code(error) == _NOT_ACTIVATED:
        return (
            "The server does not let this node in: it was not admitted, or another process is connected with its key. "
            "Ask the server's operator to run `fedcalib server admit`, and see that the site runs once only."
        )
    if error.response.status_code == 401:
        return (
            "The server does not accept this node's key: it was revoked, or is not the one that was admitted. Ask the "
            "server's operator to run `fedcalib server admit`."
        )
    return f"The server answered {error.response.status_code}: {error.response.text[:200]}."


_OTHER_AUTHORITY: Final = "its certificate is not signed by the authority in {authority}; ask for the right file"
_TLS: Final = {  # what OpenSSL says, and what to do
    "certificate has expired": "its certificate has expired; ask the server's operator to renew it",
    "certificate is not yet valid": "its certificate is not valid yet; check the clock of this machine",
    "unable to get local issuer": _OTHER_AUTHORITY,
    "self-signed certificate": _OTHER_AUTHORITY,
    "signature failure": _OTHER_AUTHORITY,
    "mismatch": "its certificate is for another host name; use a name that `fedcalib certs --host` was given",
}


def unreachable(link: Link, error: Exception) -> str:
    """Why a server cannot be reached, and what to do."""
    known = next((advice for words, advice in _TLS.items() if words in str(error)), None)
    if known is None:
        return (
            f"Found no server at {link.address} ({error or type(error).__name__}); check the address, and that it runs."
        )
    return f"The server at {link.address} cannot be trusted: {known.format(authority=link.authority)}."


def _code(error: Any) -> int | None:
    from flwr.supercore.error import FlowerError

    found = FlowerError.from_json(error.response.text)
    return None if found is None else int(found.code)
