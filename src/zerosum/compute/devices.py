"""Devices: rows on the host, or on a device with memory of its own (a GPU of PyTorch or CuPy).

Sums over rows are computed where the rows are. Public parameters move there once per release, the sum comes back once,
and the length of blocks depends on the device's memory. No function here depends on values.
"""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_cupy_array, is_numpy_array, is_torch_array
from array_api_compat import device as device_of

from zerosum.arrays import Array, Floats
from zerosum.errors import BadData, BadParameter, Refused

HOST = "cpu"
NAMES = r"^(cpu|cuda(:(0|[1-9][0-9]{0,2}))?)$"
"""Devices by name, for a site's file."""

_constants_on_device: ContextVar[dict[int, tuple[Any, Array]] | None] = ContextVar("_moved", default=None)
_terms: ContextVar[int | None] = ContextVar("_terms", default=None)
_sound: set[str] = set()  # devices that passed `check_products`
# types that PyTorch has
_NUMBERS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
_AT_ONCE = 1 << 28  # bytes of a table that are copied to a device at a time
_PINNED = 1 << 20  # least bytes for a copy through pinned memory


def on_host(rows: Array) -> bool:
    """Whether an array is NumPy's. Such arrays are processed in pieces that stay in a processor's cache, others in
    batches.
    """
    return bool(is_numpy_array(rows))


def is_gpu(rows: Array) -> bool:
    """Whether rows are in the memory of a GPU."""
    return bool((is_torch_array(rows) and rows.device.type == "cuda") or is_cupy_array(rows))


@contextmanager
def release_scope(max_terms: int) -> Iterator[None]:
    """Scope of one release: inside it `constant_on` moves each constant once, and up to `max_terms` rows may be
    added up in any order.
    """
    moved, allowed = _constants_on_device.set({}), _terms.set(max_terms)
    try:
        yield
    finally:
        _constants_on_device.reset(moved)
        _terms.reset(allowed)


def max_terms() -> int | None:
    """Number of rows that may be added up in any order in this release; None outside of a release."""
    return _terms.get()


def constant_on(constant: Any, rows: Array) -> Array:
    """A public constant (a NumPy array) in the namespace of the rows and on their device."""
    if on_host(rows):
        return np.asarray(constant)
    cache = _constants_on_device.get()
    if cache is not None and (entry := cache.get(id(constant))) is not None:
        return entry[1]
    moved = array_on(constant, rows)
    if cache is not None:
        # the reference keeps the constant alive, so that no other object gets its id
        cache[id(constant)] = constant, moved
    return moved


def array_on(array: Any, rows: Array) -> Array:
    """A NumPy array in the namespace of the rows and on their device. Not for constants; the copy is not kept."""
    if on_host(rows):
        return np.asarray(array)
    if is_torch_array(rows) and rows.device.type == "cuda":  # a plain copy would block until the device is idle
        return _pinned(array).to(rows.device, non_blocking=True)
    return array_namespace(rows).asarray(array, device=device_of(rows))


def to_numpy(vector: Array) -> Floats:
    """An array of any namespace as NumPy float64, copied from its device."""
    if is_numpy_array(vector):
        return np.asarray(vector, dtype=np.float64)
    return np.asarray(to_host(vector), dtype=np.float64)


def to_host(array: Array) -> Any:
    """An array of any namespace as a NumPy array of the same type."""
    if is_numpy_array(array):
        return np.asarray(array)
    # A tensor that requires gradients does not convert; values are needed only.
    if is_torch_array(array):
        return _from_torch(array.detach())
    if is_cupy_array(array):
        return array.get()
    xp = array_namespace(array)
    if hasattr(xp, "Device"):  # array-api-strict: its second device does not convert to NumPy
        array = xp.asarray(array, device=xp.Device("CPU_DEVICE"))
    return np.from_dlpack(array)


def _from_torch(tensor: Any) -> Any:
    """A tensor as a NumPy array; a long one is copied from a GPU through pinned memory."""
    if tensor.device.type != "cuda" or tensor.nbytes < _PINNED:
        return tensor.cpu().numpy()
    # A device copies into pinned memory without a staging buffer; below `_PINNED` bytes allocating it costs more.
    pinned = _torch().empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return pinned.copy_(tensor).numpy()


def check_device(name: str) -> str:
    """Return the full name of a device; refuse one that is not there, does not work, or rounds where it must not."""
    if not isinstance(name, str) or not re.fullmatch(NAMES, name):
        raise BadParameter(f"device must be 'cpu', 'cuda' or 'cuda:1' and so on, got {name!r}")
    if name == HOST:
        return name
    torch, number = _torch(), int(name.partition(":")[2] or 0)
    # The device is tested before a study, since a failure in a round would come after the consent.
    if not torch.cuda.is_available() or number >= torch.cuda.device_count():
        raise BadParameter(f"the device is {name!r}, but PyTorch finds no such device here")
    try:
        check_products(torch.zeros(1, device=f"cuda:{number}"))
    except RuntimeError as error:  # reserved by another process, full, or of another driver
        raise BadParameter(f"the device {name!r} does not work", detail=str(error)) from error
    return f"cuda:{number}"


def check_products(rows: Array) -> None:
    """Refuse the GPU of these rows if products of whole numbers round there, as where a library emulates double
    precision. Decisions rest on such products (`zerosum.compute.backends.exact`). The test uses public numbers and runs
    once per device.
    """
    if not is_gpu(rows):
        return
    where = f"{array_namespace(rows).__name__} {device_of(rows)}"
    if where not in _sound:
        if not exact(rows):
            raise Refused(
                f"the device {device_of(rows)} rounds products of whole numbers in double precision, so that it cannot "
                "be used for private data: unset CUBLAS_EMULATE_DOUBLE_PRECISION, or use the CPU"
            )
        _sound.add(where)


def exact(rows: Array) -> bool:
    """Whether the device of the rows multiplies whole numbers of norm 2^26 as the host does, where the
    products are exact.
    """
    # 1024 entries of at most 2^21 have norm at most 2^26, so that every product is at most 2^52. The seed is fixed,
    # since the test must not depend on data.
    numbers = np.random.default_rng(0).integers(-(2**21), 2**21, (1024, 1024), endpoint=True).astype(np.float64)
    there = array_on(numbers, rows)
    xp = array_namespace(there)
    return bool(np.array_equal(to_host(xp.matmul(there, xp.matrix_transpose(there))), numbers @ numbers.T))


def to_device(rows: Any, device: Any) -> Array:
    """Copy rows from the host to a device, in parts through pinned memory, so that other work continues. A table that
    is mapped from a file is never in memory as a whole.
    """
    torch = _torch()
    where = torch.device(device)
    if where.type != "cuda":
        return _tensor(rows).to(where)
    # Rows per part: `_AT_ONCE` bytes at the mean number of bytes per row.
    at_once = max(1, _AT_ONCE * len(rows) // max(1, rows.nbytes))
    stream = _copying(str(where))
    with torch.cuda.stream(stream):
        moved = torch.empty(rows.shape, dtype=_tensor(rows[:0]).dtype, device=where)
        for start in range(0, len(rows), at_once):
            part = rows[start : start + at_once]
            moved[start : start + at_once].copy_(_pinned(part), non_blocking=True)
    # The caller may change or unmap the rows after the return, so that the copies must be complete.
    stream.synchronize()
    # The memory was allocated on the copy stream; PyTorch must not reuse it while the default stream still reads it.
    moved.record_stream(torch.cuda.default_stream(where))
    return moved


@cache
def _copying(device: str) -> Any:
    """The stream for copies to a device. PyTorch keeps memory per stream: with one stream per block no memory would be
    reused.
    """
    return _torch().cuda.Stream(device)


def _tensor(table: Any) -> Any:
    """A NumPy array as a tensor, contiguous, in native byte order; as doubles if PyTorch does not have its type. A
    read-only array (a mapped file) is copied, since PyTorch would warn.
    """
    table = np.asarray(table)
    if table.dtype.kind not in "biuf":
        raise BadData("rows on a device must hold real numbers")
    kind = table.dtype.newbyteorder("=") if table.dtype.name in _NUMBERS else np.dtype(np.float64)
    return _torch().from_numpy(np.require(table, kind, ["C", "W"]))


def _pinned(table: Any) -> Any:
    """A copy in pinned memory, which the device reads without the processor."""
    given = _tensor(table)
    return _torch().empty(given.shape, dtype=given.dtype, pin_memory=True).copy_(given)


def available_bytes(rows: Array | str, wanted: float = math.inf) -> int | None:
    """Bytes that a pass over rows may take on their device (given by the rows or by name) beside the rows; None on the
    host.

    With `wanted`, memory that PyTorch holds in reserve is counted only if the free memory is less than that.
    """
    if isinstance(rows, str):
        return None if rows == HOST else _cuda_room(_torch().device(rows), wanted)
    if is_torch_array(rows) and rows.device.type == "cuda":
        return _cuda_room(rows.device, wanted)
    if is_cupy_array(rows):
        xp = array_namespace(rows)
        # Half of the free memory with CuPy, two thirds with PyTorch (`_cuda_room`); the rest is a margin for the
        # libraries' own buffers. Chosen by hand; no benchmark recorded.
        return int(xp.cuda.Device().mem_info[0] + xp.get_default_memory_pool().free_bytes()) // 2
    return None


def _cuda_room(device: Any, wanted: float) -> int:
    """Two thirds of the free memory of a GPU, in bytes. See `available_bytes` for `wanted`."""
    cuda = _torch().cuda
    free = int(cuda.mem_get_info(device)[0])
    if free * 2 // 3 < wanted:
        # Fragments of the reserve may be too small for a block, so that it is counted only where free memory is not
        # enough.
        free += cuda.memory_reserved(device) - cuda.memory_allocated(device)  # held in reserve by PyTorch
    return free * 2 // 3


def no_memory(error: BaseException) -> bool:
    """Whether an error means that memory is full, including errors that are recognisable only by their message."""
    if isinstance(error, MemoryError) or type(error).__name__ in ("OutOfMemoryError", "OutOfMemory"):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:  # a file that cannot be mapped, a thread
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in ("out of memory", "ALLOC_FAILED"))


def works(rows: Array) -> bool:
    """Whether the device of the rows still computes. After a CUDA failure every later call fails, so
    the device is probed.
    """
    if not is_gpu(rows):
        return True
    try:
        xp = array_namespace(rows)
        return bool(xp.all(xp.ones(1, device=device_of(rows)) == 1))
    except Exception:
        return False


def _torch() -> Any:
    """PyTorch, or `BadParameter` with the command that installs it."""
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise BadParameter("a GPU needs PyTorch, which is not installed here: pip install zerosum[torch]") from None
    return torch
