"""Modules that only FLARE or Triton loads are looked at where these are installed (`make test-flare`)."""

from importlib.util import find_spec

_FLARE = [f"src/zerosum/flare/{name}.py" for name in ("cells", "controller", "launcher", "relay")]
_KERNELS = ["src/zerosum/compute/backends/triton_kernels.py"]
collect_ignore_glob = [*([] if find_spec("nvflare") else _FLARE), *([] if find_spec("triton") else _KERNELS)]
