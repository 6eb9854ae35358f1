"""Sites in network namespaces of their own, each at the end of a line with delay and loss.

Where the kernel has no `netem`, a process carries packets between two TUN devices, one in each namespace: it holds each
back for a while and drops some. What is lost is lost to the kernel's own TCP.

    python network_lines.py HUB SITE NUMBER SECONDS LOSS  # runs until killed; needs CAP_SYS_ADMIN and CAP_NET_ADMIN
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI, _CLONE_NEWNET = 0x400454CA, 0x0001, 0x1000, 0x40000000


def ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


def allowed() -> str:
    """Why this machine has no such lines, or nothing."""
    try:
        ip("netns", "add", f"zs-{os.getpid()}-try")
        ip("netns", "del", f"zs-{os.getpid()}-try")
        with Path("/dev/net/tun").open("rb"):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces or TUN devices here: {error}"


class Lines:
    """A namespace for the hub and one for each site, at 10.7.N.2 with the hub at 10.7.N.1 for it."""

    def __init__(self, names: tuple[str, ...], seconds: float, loss: float) -> None:
        self._mark = f"zs-{os.getpid()}"
        self.hub = f"{self._mark}-hub"
        self._spaces = {name: f"{self._mark}-{name}" for name in names}
        self._carriers: dict[str, subprocess.Popen[bytes]] = {}
        self._numbers = {name: at + 1 for at, name in enumerate(names)}
        self._seconds, self._loss = seconds, loss
        for space in (self.hub, *self._spaces.values()):
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        for name in names:
            self.join(name)

    def join(self, name: str) -> None:
        number, space = self._numbers[name], self._spaces[name]
        words = [sys.executable, __file__, self.hub, space, number, self._seconds, self._loss]
        carrier = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE)
        assert carrier.stdout is not None
        assert carrier.stdout.readline() == b"ready\n"
        self._carriers[name] = carrier
        for where, end in ((self.hub, 1), (space, 2)):
            ip("-n", where, "addr", "add", f"10.7.{number}.{end}/24", "dev", f"line{number}")
            ip("-n", where, "link", "set", f"line{number}", "up")
        ip("-n", space, "route", "replace", "default", "via", f"10.7.{number}.1")

    def cut(self, name: str) -> None:
        """From now on nothing passes: the carrier stands still, and the devices stay as they are."""
        self._carriers[name].send_signal(19)  # SIGSTOP

    def mend(self, name: str) -> None:
        self._carriers[name].send_signal(18)  # SIGCONT

    def inside(self, name: str, hosts: Path) -> list[str]:
        """What a command begins with to run there, with a file of hosts of its own."""
        space = self.hub if name in ("server", "admin") else self._spaces[name]
        bind = 'mount --bind "$0" /etc/hosts && exec "$@"'
        return ["ip", "netns", "exec", space, "sh", "-c", bind, str(hosts)]

    def address(self, name: str) -> str:
        """The hub's, as a site sees it."""
        return "127.0.0.1" if name in ("server", "admin") else f"10.7.{self._numbers[name]}.1"

    def close(self) -> None:
        for carrier in self._carriers.values():
            carrier.kill()
            carrier.communicate()
        for space in (self.hub, *self._spaces.values()):
            ip("netns", "del", space)


# ---- the process that carries ------------------------------------------------------------------------------------


def _device(space: str, name: str) -> int:
    """A TUN device in a namespace; its file stays usable from anywhere."""
    with Path(f"/run/netns/{space}").open("rb") as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def main() -> None:
    hub, site, number, seconds, loss = sys.argv[1:]
    ends = [_device(space, f"line{number}") for space in (hub, site)]
    rng, count = random.Random(int(number)), 0
    waiting: list[tuple[float, int, int, bytes]] = []
    print("ready", flush=True)
    while True:
        pause = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else 1.0
        for end in select.select(ends, [], [], pause)[0]:
            packet = os.read(end, 1 << 16)
            if rng.random() >= float(loss):
                count += 1
                other = ends[1] if end == ends[0] else ends[0]
                heapq.heappush(waiting, (time.monotonic() + float(seconds), count, other, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(waiting)
            try:
                os.write(end, packet)
            except OSError:  # the device is not up
                continue


if __name__ == "__main__":
    main()
