"""A PostgreSQL server of its own for a test, on a Unix socket."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pytest

# Where Debian and others install the server's programs, which are not on the path.
SERVER = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
PASSWORD = "s3cret: /@"


def serve_postgresql() -> Iterator[str]:
    """Run a server until the address is not needed any more. The test is skipped if there is none."""
    pytest.importorskip("adbc_driver_postgresql.dbapi")
    if not SERVER:
        pytest.skip("there is no PostgreSQL server: apt-get install postgresql")
    # Not a folder of pytest, which only the user of the tests may enter; and a path of a socket must be short.
    with TemporaryDirectory(prefix="pg-") as name:
        yield from _serve(Path(name))


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A cursor of the server, which commits each statement."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    known = address.replace("reader@", f"reader:{quote(PASSWORD, safe='')}@")
    with dbapi.connect(known, autocommit=True) as connection, connection.cursor() as cursor:
        yield cursor


def _serve(folder: Path) -> Iterator[str]:
    """Run the server. `folder`: of the data and of the socket."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    programs = SERVER[-1].parent
    # The server refuses to run as root.
    own = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    if own:
        subprocess.run(["chown", "postgres", str(folder)], check=True)
    (folder / "word").write_text(PASSWORD)
    if own:
        subprocess.run(["chown", "postgres", str(folder / "word")], check=True)
    start = [*own, str(programs / "initdb"), "-D", str(folder / "data"), "-U", "reader", "-A", "scram-sha-256"]
    subprocess.run([*start, "--pwfile", str(folder / "word"), "-E", "UTF8"], check=True, capture_output=True, cwd="/")
    options = ["-D", str(folder / "data"), "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
    server = subprocess.Popen([*own, str(programs / "postgres"), *options], stderr=subprocess.DEVNULL, cwd="/")
    try:
        address = f"postgresql://reader@/postgres?host={folder}"
        # The socket is there before the server answers; a server that fails ends the loop with its exit.
        for _ in range(600):
            with suppress(dbapi.OperationalError), connected(address):
                break
            if server.poll() is not None:
                break
            time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait()
