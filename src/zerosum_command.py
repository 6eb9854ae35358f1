"""What the script `zerosum` calls: the command line, which takes a second to load and can be interrupted in that time.

Outside the package, since to import anything of the package is to load most of it. Tested in tests/test_packaging.py.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130


def main() -> None:
    """Run the command line; Ctrl-C before it is there ends quietly, as nothing was begun yet."""
    own = signal.getsignal(signal.SIGINT)
    if own is signal.default_int_handler:  # else somebody ignores it, as shells do for what runs in the background
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from zerosum.cli import main as run

    signal.signal(signal.SIGINT, own)
    run()
