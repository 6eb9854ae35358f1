"""Gradients of PyTorch modules: right, clipped, the same wherever an example stands, and refused where they cannot be.

`make test-torch` runs these; where PyTorch is not installed they are skipped.
"""

from __future__ import annotations

import copy
import logging
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zerosum.compute.units import Units
from zerosum.errors import BadParameter, Refused
from zerosum.kernel.statistic import Adjacency
from zerosum.statistics import module_gradients
from zerosum.statistics.module import ModuleGradient
from zerosum.statistics.module_gradients import Architecture, Runner
from zerosum.statistics.module_registry import find_module, register_module

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

Floats = NDArray[np.float64]


def small(classes: int = 3) -> Any:
    """Convolution, group norm and a linear layer for 6 x 6 pixels."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.Tanh(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(128, classes)
    )


class Remembering(torch.nn.Module):  # type: ignore[misc]
    """Adds up what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(36, 3)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.seen += 1
        return self.layer(x.flatten(1))


class Unsteady(torch.nn.Module):  # type: ignore[misc]
    """Draws a number each time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(36, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x.flatten(1)) * (1 + np.random.default_rng().random())


def normed() -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(128, 3))


def running() -> Any:
    nn = torch.nn
    norm = nn.InstanceNorm2d(8, track_running_stats=True)
    return nn.Sequential(nn.Conv2d(1, 8, 3), norm, nn.Flatten(), nn.Linear(128, 3))


def frozen() -> Any:
    layer = torch.nn.Linear(36, 3)
    layer.bias.requires_grad_(False)
    return torch.nn.Sequential(torch.nn.Flatten(), layer)


factories: dict[str, Any] = {
    "small": small,
    "remembering": Remembering,
    "unsteady": Unsteady,
    "normed": normed,
    "running": running,
    "frozen": frozen,
    "none": lambda: 3,
    "uneven": lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 129), torch.nn.Linear(129, 3)),
}
for name, factory in factories.items():
    register_module(f"test-{name}", factory)


def made(module: str = "test-small", classes: int = 3, clip: float = 1e6, **extra: Any) -> ModuleGradient:
    precision = extra.pop("precision", "float64")
    settings = {"classes": classes} if module == "test-small" else {}
    architecture = Architecture.of(module, settings, (1, 6, 6), classes, precision)
    params = {
        "columns": 37,
        "module": module,
        "settings": settings,
        "shape": (1, 6, 6),
        "classes": classes,
        "clip": clip,
        "batch": 16,
        "weights": architecture.start(0),
        "precision": precision,
    }
    return ModuleGradient(**params | extra)


def rows_of(count: int, classes: int = 3, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, classes, count) if classes > 1 else rng.uniform(-1, 1, count)
    return np.column_stack([rng.normal(size=(count, 36)), label])


def plain(stat: ModuleGradient, rows: Floats) -> Floats:
    """One example after the other by ordinary backpropagation."""
    module, found = stat.architecture.built(), []
    for row in rows:
        module.zero_grad()
        out = module(torch.from_numpy(row[:-1].reshape(1, 1, 6, 6)).to(next(module.parameters()).dtype))
        if stat.classes == 1:
            (0.5 * (out[0, 0] - row[-1]) ** 2).backward()
        else:
            torch.nn.functional.cross_entropy(out, torch.tensor([int(row[-1])])).backward()
        found.append(torch.cat([each.grad.flatten() for each in module.parameters()]).double().numpy())
    return np.array(found)


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("count", [1, 5, 16, 37])
def test_module_gradient_sum_is_of_clipped_gradients(classes: int, count: int) -> None:
    rows = rows_of(count, classes)
    stat = made(classes=classes)
    each = plain(stat, rows)
    assert stat.total(Units.from_rows(rows)) == pytest.approx(each.sum(axis=0), abs=1e-9)
    norms = np.linalg.norm(each, axis=1)
    clip = float(np.median(norms)) * 0.9
    wanted = np.sum(each * np.minimum(1, clip / norms)[:, None], axis=0)
    assert made(classes=classes, clip=clip).total(Units.from_rows(rows)) == pytest.approx(wanted, abs=1e-9)


def test_module_gradient_examples_of_person_are_averaged_before_clip() -> None:
    rows, sizes = rows_of(40), [1, 7, 2, 30]
    stat = made(clip=0.6)
    each = plain(stat, rows)
    wanted = np.zeros(stat.size)
    for own in np.split(each, np.cumsum(sizes)[:-1]):
        mean = own.mean(axis=0)
        wanted += mean * min(1, 0.6 / np.linalg.norm(mean))
    people = Units.from_list(np.split(rows, np.cumsum(sizes)[:-1]))
    assert stat.total(people) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40])
def test_module_gradient_unit_alone_and_among_others_has_same_bits(precision: str, count: int) -> None:
    """A crowd of equal examples adds up to so many times one of them, up to the rounding of doubles."""
    stat = made(clip=0.3, precision=precision)
    row = rows_of(1, seed=3)
    alone = stat.total(Units.from_rows(row))
    crowd = stat.total(Units.from_rows(np.repeat(row, count, axis=0)))
    assert np.max(np.abs(crowd - count * alone)) <= 1e-15 * count


def test_module_gradient_sensitivity_is_attained_within_two_percent() -> None:
    stat = made(clip=0.05, precision="float32", classes=2)
    rows = rows_of(30, 2)
    farthest = 0.0
    for row in rows:
        pair = [stat.total(Units.from_rows(np.append(row[:-1], label)[None, :])) for label in (0, 1)]
        assert max(np.linalg.norm(each) for each in pair) <= stat.sensitivity(Adjacency.ADD_REMOVE) * (1 + 1e-12)
        farthest = max(farthest, float(np.linalg.norm(pair[0] - pair[1])))
    assert 0.98 * stat.sensitivity(Adjacency.REPLACE_ONE) <= farthest <= 2 * 0.05 * (1 + 1e-12)


@pytest.mark.parametrize("people", [False, True])
def test_module_gradient_not_finite_counts_as_zero_and_others_unchanged(people: bool) -> None:
    stat = made(clip=0.3, precision="float32")
    rows = rows_of(5)
    broken = rows.copy()
    broken[2, :-1] = 1e300
    offsets = np.arange(6) if people else None
    without = stat.total(Units(np.delete(rows, 2, axis=0), None if offsets is None else offsets[:-1]))
    assert np.max(np.abs(stat.total(Units(broken, offsets)) - without)) <= 1e-14


def test_module_gradient_leaves_torch_settings_unchanged() -> None:
    state = torch.random.get_rng_state()
    made(clip=0.3).total(Units.from_rows(rows_of(3)))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic


def test_module_runner_layers_of_uneven_width_keep_unit_bits(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run = Runner(made("test-uneven").architecture, 16, "cpu")
    assert run.batch == 16 or caplog.records
    assert run._examples_are_independent(run.batch)


def test_module_runner_on_device_with_uneven_rounding_halves_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some kernels do: what stands in the second half rounds otherwise."""
    right = Runner.gradients

    def worse(self: Runner, parameters: Any, x: Any, y: Any) -> Any:
        found = right(self, parameters, x, y)
        if len(x) > 2:
            found[0][len(x) // 2 :] *= 1 + 2**-20
        return found

    monkeypatch.setattr(Runner, "gradients", worse)
    assert Runner(made().architecture, 16, "cpu").batch == 2


def test_module_runner_with_coupled_examples_takes_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Runner.gradients

    def worse(self: Runner, parameters: Any, x: Any, y: Any) -> Any:
        found = right(self, parameters, x, y)
        largest = x.abs().nan_to_num().max()
        return [each * (1 + 1e-12 * (largest if len(x) > 1 else 0)) for each in found]

    monkeypatch.setattr(Runner, "gradients", worse)
    assert Runner(made().architecture, 16, "cpu").batch == 1


@pytest.mark.parametrize(
    ("module", "error", "named"),
    [
        ("test-normed", Refused, "BatchNorm2d"),
        ("test-running", Refused, "track_running_stats"),
        ("test-remembering", Refused, "buffers"),
        ("test-unsteady", Refused, "'test-unsteady'"),
        ("test-frozen", BadParameter, "parameters"),
        ("test-none", BadParameter, "torch.nn.Module"),
        ("nowhere", BadParameter, "'nowhere'"),
    ],
)
def test_module_gradient_module_that_cannot_be_private_is_refused(
    module: str, error: type[Exception], named: str
) -> None:
    stat = made().model_copy(update={"module": module, "settings": {}})
    with pytest.raises(error, match=named):
        stat.check(Units.from_rows(rows_of(3)))
    with pytest.raises(error, match=named):
        stat.total(Units.from_rows(rows_of(3)))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"settings": {"classes": 4}}, "3"),
        ({"settings": {"width": 4}}, "width"),
        ({"shape": (36,)}, "input"),
        ({"weights": np.zeros(7)}, "7"),
    ],
)
def test_module_gradient_bad_settings_are_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadParameter, match=named):
        made().model_copy(update=change).check(Units.from_rows(rows_of(3)))


@pytest.mark.parametrize("change", [{"shape": (5, 5)}, {"batch": 12}, {"weights": np.zeros((2, 2))}, {"classes": 0}])
def test_module_gradient_bad_parameter_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BadParameter):
        made(**change)


def test_module_gradient_device_is_chosen_by_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module_gradients.DEVICE, "cuda:7")
    if not torch.cuda.is_available():
        with pytest.raises(BadParameter, match="cuda:7"):
            made().check(Units.from_rows(rows_of(3)))
    assert "device" not in ModuleGradient.model_fields


def test_register_module_name_is_taken_once_and_entry_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadParameter, match="'tanh-cnn'"):
        register_module("tanh-cnn", small)

    class Point:
        def load(self) -> Any:
            return small

    monkeypatch.setattr("zerosum.statistics.registry.entry_points", lambda group, name: [Point()])
    assert find_module("test-from-an-entry-point") is small


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("columns", [36, 37], ids=["whole rows", "a part of rows"])
def test_module_runner_batches_from_any_memory_layout_are_equal(precision: str, columns: int) -> None:
    """A part of a table, with gaps between its rows, and a batch that had to be padded are multiplied by the same
    kernel only if they are laid out alike."""
    run = Runner(Architecture.of("test-small", {}, (1, 6, 6), 3, precision), 4, "cpu")
    table = torch.arange(11.0 * columns, dtype=torch.float64).reshape(11, columns)
    found = list(run.batches(table[1:, :36], torch.arange(10)))
    assert [real for real, _own, _label in found] == [4, 4, 2]
    for _real, own, label in found:
        assert own.shape == (4, 1, 6, 6)
        assert own.is_contiguous()
        assert (own.storage_offset(), label.storage_offset()) == (0, 0)
        assert own.data_ptr() % 64 == 0
        assert own.dtype == getattr(torch, precision)
    seen = torch.cat([own[:real] for real, own, _label in found]).reshape(10, 36).double()
    assert torch.equal(seen, table[1:, :36].to(getattr(torch, precision)).double())
    assert not found[-1][1][2:].any()


@pytest.mark.parametrize(
    "conv",
    [
        {"kernel_size": (3, 4), "stride": (2, 1), "padding": (1, 2)},
        {"kernel_size": 5, "bias": False},
        {"kernel_size": 2, "stride": 3},
    ],
)
def test_module_gradient_unfolded_convolutions_equal_plain_ones(conv: dict[str, Any]) -> None:
    """Gradients of each example too, and nothing goes example by example (PyTorch would warn, which is an error)."""
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 4, **conv), torch.nn.Tanh(), torch.nn.Conv2d(4, 2, 2), torch.nn.Flatten()
    net = torch.nn.Sequential(*layers).double()
    other, x = copy.deepcopy(net), torch.randn(5, 3, 13, 12, dtype=torch.float64)
    module_gradients._unfold(other)
    parameters = {name: each.detach() for name, each in net.named_parameters()}

    def gradients(module: Any) -> dict[str, Any]:
        def loss(p: dict[str, Any], x: Any) -> Any:
            return (torch.func.functional_call(module, p, (x[None],)) ** 2).sum()

        found: dict[str, Any] = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
        return found

    torch.testing.assert_close(other(x), net(x))
    torch.testing.assert_close(gradients(other), gradients(net))
