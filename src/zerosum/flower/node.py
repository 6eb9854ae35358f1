"""A site's node in a Flower federation: pulls messages from the SuperLink, and runs no code from there.

Flower's own SuperNode fetches the code bundle of a run, which the uploader of the run writes, installs it and starts it
as its user. This node speaks the same Fleet API, over TLS and under a registered key, and never asks for the bundle: a
message goes to `client_app.answer`, which is installed here. It opens no port and starts no process.

Messages wait at the SuperLink until they are pulled. The pause between two requests grows while nothing arrives.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.node_pb2 import Node as NodeNumber
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_objects,
    push_objects,
)
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from zerosum.engines.local_site import LocalSite
from zerosum.errors import BadInput
from zerosum.flower.client_app import answer

_LOG = getLogger("zerosum.flower")


@dataclass(frozen=True)
class Tuning:
    """Times in seconds and sizes of the node, chosen by hand."""

    #: First and longest pause between two requests for messages, and the factor from one to the next. In an idle
    #: federation a node costs the SuperLink one request in `longest_pause`.
    first_pause: float = 0.1
    longest_pause: float = 2.0
    growth: float = 1.2
    #: Interval that the node announces, the smallest that Flower permits; the node is offline after two of them
    #: without a heartbeat.
    interval: float = 10.0
    #: Pause between two heartbeats: three may fail before the node counts as offline.
    heartbeat: float = 5.0
    #: Pause before the connection to the SuperLink is tried again.
    again: float = 1.0
    #: Messages that are carried at the same time, each in a thread with a connection to the site. A site serves 8
    #: studies by default.
    threads: int = 8
    #: How often a request is sent whose connection breaks.
    tries: int = 3


TUNING = Tuning()


class _Again:
    """Interceptor of Flower's client: sends a request again whose connection broke before the reply.

    The SuperLink closes connections that were idle for some seconds, perhaps at the moment in which a request is sent.
    A request may be repeated: the SuperLink takes each object and each reply once.
    """

    def intercept(self, context: Any, call_next: Any) -> Any:
        """Send the request of `context` by `call_next`."""
        for _ in range(TUNING.tries - 1):
            try:
                return call_next(context)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                continue
        return call_next(context)


class Node:
    """The node of one site, which runs until `stop`.

    Parameters
    ----------
    superlink : str
        Address of the SuperLink, HOST:PORT.
    authority : bytes
        Certificate (PEM) of the authority that signed the SuperLink's certificate.
    key : EllipticCurvePrivateKey
        Key of this node, whose public half is registered at the SuperLink.
    socket : Path
        Socket of the site's process.
    seconds : float
        Time-out of one reply of the site's process.
    """

    def __init__(
        self, superlink: str, authority: bytes, key: ec.EllipticCurvePrivateKey, socket: Path, seconds: float
    ) -> None:
        self._public = public_key_to_bytes(key.public_key())
        self._socket, self._seconds = socket, seconds
        self._client = FleetHttpClient.from_server_address(
            superlink,
            False,
            authority,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(key, key.public_key()),
                _Again(),
            ],
        )
        self._stopped = threading.Event()
        self._free = threading.BoundedSemaphore(TUNING.threads)
        self._pool = ThreadPoolExecutor(TUNING.threads, thread_name_prefix="zerosum-node")
        self._sites = threading.local()  # a connection to the site for each thread
        self._number = NodeNumber()

    def stop(self) -> None:
        """End `run` after the messages in progress."""
        self._stopped.set()

    def run(self) -> None:
        """Carry messages until `stop`. A SuperLink that cannot be reached is tried again for ever."""
        heartbeats = threading.Thread(target=self._heartbeats, daemon=True)
        complaint = ""
        while not self._stopped.is_set():
            try:
                if not self._number.node_id:
                    self._activate()
                    _LOG.warning("connected to the SuperLink as node %d", self._number.node_id)
                    if not heartbeats.is_alive():
                        heartbeats.start()
                complaint = ""
                self._serve()
            # An HTTP status: the SuperLink has started anew and does not know the key yet, or Flower still takes an
            # earlier process of this node as online, for 20 s at the most.
            except httpx.HTTPError as error:
                words = f"the SuperLink does not serve this node: {_reason(error)}"
                if words != complaint:  # once, not every second
                    _LOG.warning(words)
                complaint, self._number = words, NodeNumber()
                self._stopped.wait(TUNING.again)
        self._pool.shutdown()
        try:
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._number.node_id))
        except httpx.HTTPError:
            _LOG.warning("the SuperLink does not answer at the end; it takes this node as offline in 20 s")
        self._client.close()

    def _activate(self) -> None:
        """Become online, and learn the number that the SuperLink gave the registered key."""
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=TUNING.interval)
        self._number = NodeNumber(node_id=self._client.ActivateNode(request).node_id)

    def _heartbeats(self) -> None:
        """Tell the SuperLink that the node is there, also while the site computes."""
        while not self._stopped.wait(TUNING.heartbeat):
            number = self._number
            if number.node_id:
                request = SendNodeHeartbeatRequest(node=number, heartbeat_interval=TUNING.interval)
                try:
                    self._client.SendNodeHeartbeat(request)
                except httpx.HTTPError:  # `_serve` meets the same fault and connects again
                    continue

    def _serve(self) -> None:
        """Pull messages, and carry each in a thread. Returns after `stop`."""
        pause = TUNING.first_pause
        while not self._stopped.is_set():
            # Before a message is pulled, so that one that cannot be carried yet waits at the SuperLink and not in the
            # memory of this process.
            if not self._free.acquire(timeout=TUNING.again):
                continue
            carried = False
            try:
                pulled = self._client.PullMessages(PullMessagesRequest(node=self._number))
                if pulled.messages_list:
                    self._pool.submit(self._carry, pulled)
                    carried = True
            finally:
                if not carried:
                    self._free.release()
            pause = TUNING.first_pause if carried else min(pause * TUNING.growth, TUNING.longest_pause)
            if not carried:
                self._stopped.wait(pause)

    def _carry(self, pulled: PullMessagesResponse) -> None:
        """Fetch the content of one message, ask the site's process, and send the reply.

        Parameters
        ----------
        pulled : PullMessagesResponse
            The message without its content, and the numbers of the objects of its content.
        """
        began = time.monotonic()
        try:
            # Here and not in `_serve`: the uploader of a run writes the header, and a faulty one must not end the node.
            message = self._fetch(message_from_proto(pulled.messages_list[0]), pulled.message_object_trees[0])
            if not hasattr(self._sites, "site"):
                self._sites.site = LocalSite(self._socket, self._seconds)
            self._send(answer(message, self._sites.site), time.monotonic() - began)
        # The run has ended, or the SuperLink is gone: the coordinator sends the frame again when the study goes on. Any
        # error concerns this message only, and Flower documents none.
        except Exception as error:
            _LOG.warning("a message was not answered: %s", type(error).__name__)
        finally:
            self._free.release()

    def _fetch(self, header: Message, tree: Any) -> Message:
        """The message with its content.

        Parameters
        ----------
        header : Message
            The message without its content.
        tree : ObjectTree
            Numbers of the objects of its content.
        """
        run, number = header.metadata.run_id, header.metadata.message_id
        contents = pull_objects(
            [each.object_id for each in iterate_object_tree(tree)],
            make_pull_object_fn_protobuf(self._client.PullObject, self._number, run),
            initial_backoff=TUNING.first_pause,
            backoff_cap=TUNING.longest_pause,
            max_time=self._seconds,
        )
        message = inflate_object_from_contents(number, contents)
        # Flower's messages do not contain their own number.
        message.metadata.__dict__["_message_id"] = number
        confirmed = ConfirmMessageReceivedRequest(node=self._number, run_id=run, message_object_id=number)
        self._client.ConfirmMessageReceived(confirmed)
        return message

    def _send(self, reply: Message, seconds: float) -> None:
        """Send a reply, its header first and then its objects, as Flower's own node does.

        Parameters
        ----------
        reply : Message
            The reply.
        seconds : float
            Time since the message was pulled, for Flower's statistics.
        """
        reply.metadata.__dict__["_message_id"] = reply.object_id
        pushed = self._client.PushMessages(
            PushMessagesRequest(
                node=self._number,
                messages_list=[message_to_proto(remove_content_from_message(reply) if reply.has_content() else reply)],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[seconds],
            )
        )
        send = make_push_object_fn_protobuf(
            self._client.PushObject, self._number, reply.metadata.run_id, pushed.session_id
        )
        push_objects(get_all_nested_objects(reply), send, object_ids_to_push=set(pushed.objects_to_push))


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key of a node, in the form in which Flower's own node reads it (OpenSSH)."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}; zerosum flower request makes it") from None
    except ValueError:
        raise BadInput(f"{path} is no key of a Flower node") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadInput(f"{path} is no key of a Flower node: Flower takes keys on NIST's curves only")
    return key


def _reason(error: httpx.HTTPError) -> str:
    """The kind of a fault, and the status of the SuperLink's reply if there is one."""
    status = f" (HTTP status {error.response.status_code})" if isinstance(error, httpx.HTTPStatusError) else ""
    return type(error).__name__ + status
