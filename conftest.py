"""Modules that only FLARE loads are looked at where FLARE is installed (`make test-flare`)."""

from importlib.util import find_spec

_FLARE = [f"src/zerosum/flare/{name}.py" for name in ("cells", "controller", "launcher", "relay")]
collect_ignore_glob = [] if find_spec("nvflare") else _FLARE
