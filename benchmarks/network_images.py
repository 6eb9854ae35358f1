"""A convolutional net on MNIST or Fashion-MNIST through the private sum, and pooled DP-SGD at the same epsilon.

    python benchmarks/network_images.py --data FOLDER [--name mnist] [--device cuda] [--search] [--seeds 3]

Needs PyTorch (2.6 or later) and NumPy alone, so that it runs on any machine with a GPU: `FOLDER` holds mnist.npz with
x_train, y_train, x_test and y_test. The net is `tanh-cnn` of Zerosum's registry, 26 010 weights.

Ten sites, three of them colluding with the coordinator, secure sum, delta 1e-5, a record replaced. Every site draws a
secret Poisson sample for each step (about 4096 of all 60 000 records, 512 at epsilon 1), and the step releases the sum
of gradients that are clipped over all tensors, under the noise that a plan gives it. Sites are not played: the sum
over all of them is the same. At this rate noise is that of full batches in as many steps, to a percent. The usual way
stands beside it: `DP-SGD`, small samples by a trusted curator who has all records, ours (with an average of the last
half of the weights) and, where it is installed, by Opacus (the last weights). Noise is from privacy loss
distributions for a replaced record (`python benchmarks/network.py accounting`); accounting for added and removed ones,
as libraries have it by default, would allow 1.05 to 1.9 times less, and is no such guarantee.

`--search` trains on 50 000 images and looks at the other 10 000 of the training set; the settings below are from that.
Without it the test set is looked at, once for each seed. Per-example gradients are taken layer by layer (a batched
product each) in chunks; at the start they are held against `torch.func`, which is what `ModuleGradient` uses.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]
from torch import nn  # type: ignore[import-not-found,unused-ignore]
from torch.nn import functional  # type: ignore[import-not-found,unused-ignore]

Tensor = Any

PRICE = math.sqrt(10 / 7)  # what three colluders cost: their own part of the noise does not hide others
RECORDS, SAMPLE = 60_000, 4096
CLIP, MOMENTUM, AVERAGED = 0.1, 0.9, 0.5
#: The noise of a step over the clip, by (epsilon, steps), before the price.
NOISE = {
    (1.0, 200): 7.2038,
    (1.0, 400): 10.1878,
    (1.0, 800): 14.4077,
    (3.0, 200): 2.6816,
    (3.0, 400): 3.7924,
    (3.0, 800): 5.3668,
    (8.0, 200): 1.1844,
    (8.0, 400): 1.6380,
    (8.0, 800): 2.3118,
}
#: (steps, travel, sample) by epsilon: travel is steps x rate x clip/(1 - momentum). Chosen with --search.
CHOSEN = {1.0: (1170, 1100.0, 512), 3.0: (400, 2600.0, SAMPLE), 8.0: (400, 4800.0, SAMPLE)}
#: DP-SGD as it is usual: about 512 examples a step, 1170 steps (ten epochs); noise over the clip, travel.
SMALL, SMALL_STEPS = 512, 1170
OPACUS = "pooled, DP-SGD by Opacus"
DP_SGD = {1.0: (2.1854, 1200.0), 3.0: (0.9146, 2400.0), 8.0: (0.6033, 4800.0)}


def net() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1), nn.Flatten(),
        nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


class Clipped:
    """Sums of clipped per-example gradients of a sequence of convolutions and linear layers."""

    def __init__(self, module: Any, chunk: int) -> None:
        self.module, self.chunk = module, chunk
        self._seen: dict[Any, Any] = {}
        self.layers = [each for each in module if isinstance(each, nn.Conv2d | nn.Linear)]
        for layer in self.layers:
            layer.register_forward_hook(self._keep)

    def _keep(self, layer: Any, inputs: Any, output: Tensor) -> None:
        self._seen[layer] = (inputs[0].detach(), output)

    def sum(self, x: Tensor, y: Tensor, clip: float) -> list[Tensor]:
        """Of all examples, a tensor for each weight and bias, in doubles."""
        total: list[Tensor] = []
        for start in range(0, len(x), self.chunk):
            parts = self._chunk(x[start : start + self.chunk], y[start : start + self.chunk], clip)
            total = [a + b for a, b in zip(total, parts, strict=True)] if total else parts
        return total

    def _chunk(self, x: Tensor, y: Tensor, clip: float) -> list[Tensor]:
        loss = functional.cross_entropy(self.module(x), y, reduction="sum")
        outputs = [self._seen[layer][1] for layer in self.layers]
        slopes = torch.autograd.grad(loss, outputs)
        measured = [self._layer(layer, slope) for layer, slope in zip(self.layers, slopes, strict=True)]
        factor = (clip / torch.sqrt(sum(each[0] for each in measured)).clamp(min=1e-12)).clamp(max=1.0)
        found: list[Tensor] = []
        for _squares, left, right in measured:
            if left.dim() == 3:  # every example's own gradient, since its norm needs it anyway
                weight = (factor @ left.flatten(1)).reshape(left.shape[1:])
            else:
                weight = (left * factor[:, None]).T @ right
            bias = factor @ (right if left.dim() == 3 else left)
            found += [weight.double(), bias.double()]
        return found

    def _layer(self, layer: Any, slope: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of every example the squared norm of its gradient; then gradients of weight and bias (convolutions), or their
        two factors, slopes and inputs (linear layers)."""
        inputs = self._seen[layer][0]
        if isinstance(layer, nn.Linear):
            return slope.square().sum(dim=1) * (1 + inputs.square().sum(dim=1)), slope, inputs
        places = functional.unfold(inputs, layer.kernel_size, padding=layer.padding, stride=layer.stride)
        weight, bias = torch.bmm(slope.flatten(2), places.transpose(1, 2)), slope.sum(dim=(2, 3))
        return weight.square().sum(dim=(1, 2)) + bias.square().sum(dim=1), weight, bias


def check(module: Any, x: Tensor, y: Tensor) -> None:
    """The sum against that of torch.func."""
    from torch.func import functional_call, grad, vmap  # type: ignore[import-not-found,unused-ignore]

    parameters = {name: each.detach() for name, each in module.named_parameters()}

    def loss(p: dict[str, Tensor], a: Tensor, b: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(module, p, (a[None],)), b[None])

    each = [g.flatten(1).double() for g in vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y).values()]
    norms = torch.sqrt(sum(g.square().sum(dim=1) for g in each))
    wanted = torch.cat([(CLIP / norms).clamp(max=1.0) @ g for g in each])
    found = torch.cat([g.flatten() for g in Clipped(module, 64).sum(x, y, CLIP)])
    gap = float((found - wanted).norm() / wanted.norm())
    if gap > 1e-4:
        raise SystemExit(f"gradients differ from torch.func's by {gap:.2g}")


def train(
    data: tuple[Tensor, ...], seed: int, steps: int, travel: float, noise: float, sample: float, chunk: int
) -> float:
    """Accuracy on other images after training; `noise` is that of a sum over the clip, `sample` the rate of samples."""
    x, y, others, labels = data
    torch.manual_seed(seed)
    module = net().to(x.device)
    gradients, parameters = Clipped(module, chunk), list(module.parameters())
    velocity = [torch.zeros_like(each) for each in parameters]
    average, averaged = [torch.zeros_like(each) for each in parameters], 0
    rate = travel * (1 - MOMENTUM) / (steps * CLIP)
    draw = torch.Generator(device=x.device).manual_seed(seed + 1)
    for step in range(steps):
        chosen = torch.rand(len(x), generator=draw, device=x.device) < sample
        total = gradients.sum(x[chosen], y[chosen], CLIP)
        divisor = len(x) * sample
        with torch.no_grad():
            for at, (each, found) in enumerate(zip(parameters, total, strict=True)):
                fresh = torch.randn(found.shape, generator=draw, device=x.device)
                velocity[at] = MOMENTUM * velocity[at] + ((found + CLIP * noise * fresh) / divisor).reshape(each.shape)
                each -= rate * velocity[at]
            if step >= (1 - AVERAGED) * steps:
                averaged += 1
                for mean, each in zip(average, parameters, strict=True):
                    mean += (each - mean) / averaged
    with torch.no_grad():
        for each, mean in zip(parameters, average, strict=True):
            each.copy_(mean)
        right = [
            (module(a).argmax(dim=1) == b).sum() for a, b in zip(others.split(2000), labels.split(2000), strict=True)
        ]
    return float(sum(right)) / len(labels)


def train_opacus(data: tuple[Tensor, ...], seed: int, steps: int, travel: float, noise: float, sample: float) -> float:
    """The same by Opacus: its per-example gradients, its clipping and noise, its optimiser; the last weights."""
    from opacus import GradSampleModule  # type: ignore[import-not-found,unused-ignore]
    from opacus.optimizers import DPOptimizer  # type: ignore[import-not-found,unused-ignore]

    x, y, others, labels = data
    torch.manual_seed(seed)
    module = GradSampleModule(net().to(x.device))
    rate = travel * (1 - MOMENTUM) / (steps * CLIP)
    inner = torch.optim.SGD(module.parameters(), lr=rate, momentum=MOMENTUM)
    draw = torch.Generator(device=x.device).manual_seed(seed + 1)
    optimizer = DPOptimizer(
        inner, noise_multiplier=noise, max_grad_norm=CLIP, expected_batch_size=len(x) * sample, generator=draw
    )
    for _ in range(steps):
        chosen = torch.rand(len(x), generator=draw, device=x.device) < sample
        functional.cross_entropy(module(x[chosen]), y[chosen]).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        right = [
            (module(a).argmax(dim=1) == b).sum() for a, b in zip(others.split(2000), labels.split(2000), strict=True)
        ]
    return float(sum(right)) / len(labels)


def load(folder: Path, name: str, device: str) -> tuple[Tensor, ...]:
    with np.load(folder / f"{name}.npz") as stored:
        arrays = [np.asarray(stored[key]) for key in ("x_train", "y_train", "x_test", "y_test")]
    images = [torch.from_numpy(each.astype(np.float32) / 255)[:, None].to(device) for each in arrays[::2]]
    labels = [torch.from_numpy(each.astype(np.int64)).to(device) for each in arrays[1::2]]
    return images[0], labels[0], images[1], labels[1]


def search(data: tuple[Tensor, ...], epsilons: list[float], chunk: int, examples: int) -> None:
    """Settings on a part of the training images, with noise that is to their number what it is to 60 000."""
    x, y, _others, _labels = data
    split = min(len(x) * 5 // 6, examples)
    part = x[:split], y[:split], x[len(x) * 5 // 6 :], y[len(x) * 5 // 6 :]
    for epsilon in epsilons:
        ways = (300.0, 600.0, 1200.0, 2400.0, 4800.0)
        tried = [("secure sum", SAMPLE, steps, PRICE * NOISE[epsilon, steps], way)
                 for steps, way in itertools.product((200, 400, 800), ways)]  # fmt: skip
        tried += [("DP-SGD", SMALL, SMALL_STEPS, DP_SGD[epsilon][0], way) for way in ways]
        for name, sample, steps, noise, way in tried:
            if way / steps > 13:
                continue
            began = time.perf_counter()
            score = train(part, 0, steps, way, noise * split / RECORDS, sample / RECORDS, chunk)
            took = time.perf_counter() - began
            print(
                f"eps {epsilon:g}, {name}, {steps} steps, travel {way:g}: {100 * score:.2f} % ({took:.0f} s)",
                flush=True,
            )


def final(data: tuple[Tensor, ...], epsilons: list[float], seeds: int, chunk: int) -> None:
    """The test set, once for each seed."""
    fewer = len(data[0]) / RECORDS  # a smaller set has the same samples' rate, and noise that weighs more
    if fewer != 1:
        print(f"{len(data[0])} records")
    for epsilon in epsilons:
        steps, way, sample = CHOSEN[epsilon]
        small_noise, small_way = DP_SGD[epsilon]
        noise = small_noise if sample == SMALL else NOISE[epsilon, steps]
        methods = {
            "secure sum": (steps, way, PRICE * noise, sample),
            "pooled": (steps, way, noise, sample),
            "pooled, DP-SGD": (SMALL_STEPS, small_way, small_noise, SMALL),
        }
        if importlib.util.find_spec("opacus"):
            methods[OPACUS] = methods["pooled, DP-SGD"]
        for name, (turns, travel, std, size) in methods.items():
            began = time.perf_counter()
            scores = [
                train_opacus(data, seed, turns, travel, std, size / RECORDS)
                if name == OPACUS
                else train(data, seed, turns, travel, std, size / RECORDS, chunk)
                for seed in range(seeds)
            ]
            low, high, took = 100 * min(scores), 100 * max(scores), time.perf_counter() - began
            told = f"{100 * np.mean(scores):.2f} % ({low:.2f} to {high:.2f}; {took / seeds:.0f} s each)"
            print(f"eps {epsilon:g}, {name}, {turns} steps: {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", default="mnist", choices=("mnist", "fashion_mnist"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[1.0, 3.0, 8.0])
    parser.add_argument("--chunk", type=int, default=None, help="examples at once; by default 8192 on a GPU, 256 else")
    parser.add_argument("--examples", type=int, default=60_000, help="of a search, to have it faster")
    asked = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    data = load(asked.data, asked.name, asked.device)
    chunk = asked.chunk or (8192 if asked.device.startswith("cuda") else 256)
    check(net().to(asked.device), data[0][:64], data[1][:64])
    if asked.search:
        search(data, asked.epsilon, chunk, asked.examples)
    else:
        final(data, asked.epsilon, asked.seeds, chunk)


if __name__ == "__main__":
    main()
