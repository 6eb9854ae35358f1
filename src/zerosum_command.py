"""Entry point of the script `zerosum`. It loads the command line, which can be interrupted meanwhile.

It lies outside the package, so that the handler for Ctrl-C is in place before anything of the package is loaded.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

INTERRUPTED = 130
#: Allocations between two garbage collections. With the default of 700, a fifth of the start is spent on traversing
#: modules that were just loaded and are not garbage.
ALLOCATIONS = 10_000


def main() -> None:
    """Run the command line. Ctrl-C while it loads ends the process without a message: nothing has begun yet."""
    gc.set_threshold(ALLOCATIONS, *gc.get_threshold()[1:])
    own = signal.getsignal(signal.SIGINT)
    if own is signal.default_int_handler:  # otherwise SIGINT is ignored, as shells do for background processes
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from zerosum.cli import load
    from zerosum.cli import main as run

    load(*sys.argv[1:2])
    signal.signal(signal.SIGINT, own)
    run()
