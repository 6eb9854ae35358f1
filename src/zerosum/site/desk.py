"""Decisions and audits by other users of the machine than the site's own: two sockets, one for each role.

    FOLDER/steward    lists plans that wait, returns a plan, approves, refuses, withdraws a key
    FOLDER/auditor    returns the ledger and the result of checking the audit log; changes nothing

The role of a user is the group of the socket: mode 0660, owned by the site's user and the group that the site's file
names. The kernel lets only members of the group connect, and names the user of each connection (SO_PEERCRED), whom the
audit log records. A user with both roles is in both groups. Neither socket answers frames of studies, and neither role
can read data, keys or the state folder.

A request is one line of JSON with `do`, and the reply is one line: `{"ok": ...}` or `{"error": {"type", "message"}}`.
Replies go to persons at this machine, never to a coordinator.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from zerosum.errors import BadInput, BadParameter, CheckFailed, ZerosumError, by_code
from zerosum.protocol.stream import short
from zerosum.site import audit_chain
from zerosum.site.audit_log import AuditLog, os_user
from zerosum.site.decisions import Consents
from zerosum.site.ledger import Ledger
from zerosum.site.ledger_summary import statement
from zerosum.site.policy import Policy
from zerosum.site.steward import decide

Role = Literal["steward", "auditor"]
Request = Mapping[str, Any]

_PEER = getattr(socket, "SO_PEERCRED", None)  # Linux only
_MOST = 1 << 16  # bytes of a request
_SECONDS = 30.0  # s, time-out of a connection
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of `struct ucred`, in the machine's byte order


class Desk:
    """The answers to the requests of both roles.

    Parameters
    ----------
    name, policy : str, Policy
        Of the site.
    consents, log : Consents, AuditLog
        Where decisions are stored and recorded.
    audit_path : Path
        The audit log's file.
    """

    def __init__(self, name: str, policy: Policy, consents: Consents, log: AuditLog, audit_path: Path) -> None:
        self._name, self._policy, self._consents, self._log = name, policy, consents, log
        self._audit_path = audit_path
        self._answers: dict[Role, dict[str, Callable[[Request, str], Any]]] = {
            "steward": {
                "status": self._status,
                "plan": self._plan,
                "approve": self._approve,
                "refuse": self._refuse,
                "withdraw": self._withdraw,
            },
            "auditor": {"status": self._status, "ledger": self._statement, "audit": self._audit},
        }

    def answer(self, role: Role, request: Request, user: str) -> Any:
        """The answer to one request.

        Parameters
        ----------
        role : "steward" or "auditor"
            By the socket.
        request : mapping
            The request with its arguments.
        user : str
            The user who asks, as the kernel names it.

        Raises
        ------
        BadInput
            If the role has no such request.
        """
        found = self._answers[role].get(str(request.get("do")))
        if found is None:
            raise BadInput(f"the {role} can ask for {', '.join(self._answers[role])}")
        return found(request, user)

    def _status(self, request: Request, user: str) -> dict[str, Any]:
        waiting = [(digest, self._consents.proposal(digest)) for digest in self._consents.waiting()]
        return {
            "site": self._name,
            "waiting": [
                {"digest": digest, "study": plan.study, "algorithm": plan.algorithm} for digest, plan in waiting
            ],
            "spent": self._books()["epsilon"],
            "cap": {"epsilon": self._policy.epsilon, "delta": self._policy.delta},
        }

    def _plan(self, request: Request, user: str) -> str:
        return self._consents.plan(self._digest(request)).to_json().decode()

    def _approve(self, request: Request, user: str) -> str:
        return decide(self._consents, self._log, self._digest(request), "approved", where="at the desk", user=user)

    def _refuse(self, request: Request, user: str) -> str:
        reason = str(request.get("reason", ""))
        return decide(
            self._consents, self._log, self._digest(request), "refused", reason=reason, where="at the desk", user=user
        )

    def _withdraw(self, request: Request, user: str) -> str:
        identity = str(request.get("identity", ""))
        # The key first: if the log cannot be written, the key is refused all the same. The other order could leave a
        # line about a withdrawal that does not hold.
        self._consents.withdraw(identity)
        self._log.write("decided", f"the key {identity} is withdrawn", user=user)
        return f"{identity} is withdrawn here"

    def _digest(self, request: Request) -> str:
        return self._consents.find(str(request.get("digest", "")))

    def _statement(self, request: Request, user: str) -> dict[str, Any]:
        return self._books()

    def _books(self) -> dict[str, Any]:
        """The statement of the ledger, verified, from a connection of its own that only reads."""
        with Ledger.inspect(self._policy.ledger_path, counter=self._policy.counter) as ledger:
            return statement(ledger, self._policy.cap)

    def _audit(self, request: Request, user: str) -> dict[str, Any]:
        try:
            first, last = audit_chain.verify(self._audit_path)
        except CheckFailed as error:
            return {"fault": str(error)}
        return {"fault": None, "first": first, "last": last}


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    timeout = _SECONDS

    def handle(self) -> None:
        """Answer the requests of one connection, line by line."""
        # By the kernel and not by the request, which could name another person.
        packed = self.request.getsockopt(socket.SOL_SOCKET, _PEER, _CREDENTIALS.size)
        user = os_user(_CREDENTIALS.unpack(packed)[1])
        with suppress(OSError):  # the other side went away, or was too slow
            # A longer request arrives in parts that are no JSON objects: a client cannot fill the memory.
            while line := self.rfile.readline(_MOST):
                self.wfile.write(json.dumps(self._reply(line, user)).encode() + b"\n")

    def _reply(self, line: bytes, user: str) -> dict[str, Any]:
        """The reply to one line, an error included."""
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise BadInput("a request is a JSON object in one line")
            return {"ok": self.server.desk.answer(self.server.role, request, user)}
        except ZerosumError as error:
            # The detail stays in the site's own log.
            return {"error": {"type": error.code, "message": str(error)}}
        except OSError as error:
            # Replies go to persons at this machine. Without one they would learn only that the connection ended.
            reason = f"{error.strerror or error} ({error.filename})" if error.filename else str(error)
            return {"error": {"type": "SiteFault", "message": f"the site cannot use its files: {reason}"}}
        except ValueError:
            return {"error": {"type": "BadInput", "message": "a request is a JSON object in one line"}}


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The socket of one role."""

    daemon_threads = True

    def __init__(self, path: Path, desk: Desk, role: Role) -> None:
        self.desk, self.role = desk, role
        with short(path) as name:
            super().__init__(name, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of one connection, which end with it."""


@contextmanager
def serving(desk: Desk, folder: Path, groups: Mapping[Role, str]) -> Iterator[None]:
    """Scope in which the desk answers.

    Parameters
    ----------
    desk : Desk
        The answers.
    folder : Path
        The folder of the sockets; created with mode 0711 if it does not exist, so that both groups can reach them.
    groups : mapping
        The group of the operating system for each role that has one.

    Raises
    ------
    BadInput
        If a socket cannot be made, or cannot be given to its group.
    """
    # The audit log could not name the person who decided.
    if groups and _PEER is None:
        raise BadInput("this system does not name the users of connections: leave [roles] out")
    servers = []
    try:
        for role, group in groups.items():
            path = folder / role
            try:
                folder.mkdir(mode=0o711, exist_ok=True)
                path.unlink(missing_ok=True)  # left by a killed process; the serving process holds the site's lock
                # Created without any right, so that there is no moment in which other users can connect.
                before = os.umask(0o777)
                try:
                    server = _Server(path, desk, role)
                finally:
                    os.umask(before)
                servers.append((server, path))
                # The group before the mode: in the other order members of the site's own group could connect for a
                # moment.
                shutil.chown(path, group=group)
                path.chmod(0o660)
            except (OSError, LookupError) as error:
                raise BadInput(
                    f"the socket {path} cannot be made for the group {group!r} ({error}): the site's user must be a "
                    "member of that group, and must be able to write the folder"
                ) from error
        # After the loop: if one socket fails, no request was answered by the other.
        threads = [threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True) for server, _ in servers]
        for thread in threads:
            thread.start()
        yield
        for server, _ in servers:
            server.shutdown()
    finally:
        for server, path in servers:
            server.server_close()
            path.unlink(missing_ok=True)


def ask(path: Path, **request: Any) -> Any:
    """Ask a desk, as one of its users.

    Parameters
    ----------
    path : Path
        The socket of the role.
    **request
        `do` and its arguments.

    Raises
    ------
    BadInput
        If the desk cannot be reached; else the error of the desk.
    """
    try:
        with socket.socket(socket.AF_UNIX) as stream, short(path) as name:
            stream.settimeout(_SECONDS)
            stream.connect(name)
            stream.sendall(json.dumps(request).encode() + b"\n")
            with stream.makefile("rb") as file:
                reply = json.loads(file.readline())
    except PermissionError:
        raise BadInput(f"you may not use {path}: its group has this role") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"the desk at {path} does not answer ({error}): is the site serving?") from None
    if "error" in reply:
        kind = by_code(str(reply["error"]["type"]))
        raise (BadParameter if kind is ZerosumError else kind)(str(reply["error"]["message"]))
    return reply["ok"]
