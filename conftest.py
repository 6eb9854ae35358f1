"""Modules that only FLARE, Flower or Triton loads are looked at where these are installed (`make test-flare`, ...)."""

from importlib.util import find_spec

_NEEDS = {
    "nvflare": [
        *(f"src/zerosum/flare/{name}.py" for name in ("cells", "controller", "launcher", "relay")),
        "tests/helpers/flare_killer.py",
    ],
    "flwr": [
        *(f"src/zerosum/flower/{name}.py" for name in ("client_app", "grid", "messages", "node", "server_app")),
        "tests/helpers/flower_killer.py",
    ],
    "triton": ["src/zerosum/compute/backends/triton_kernels.py"],
}
collect_ignore_glob = [path for package, paths in _NEEDS.items() if not find_spec(package) for path in paths]
