"""A network over three clinics: a risk from two measurements whose classes are not linearly separable.

The net has one hidden layer and needs only NumPy. Every step adds up the clipped gradients of all patients with noise;
weights, predictions and the purchased accuracy come from these sums. The last clinic predicts for its own patients,
which costs nothing and sends nothing.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

import zerosum

Floats = NDArray[np.float64]


def clinic(patients: int, seed: int) -> tuple[Floats, NDArray[np.str_]]:
    """Made-up patients: at risk where pressure and glucose are both high or both low."""
    rng = np.random.default_rng(seed)
    measured = rng.normal([125, 105], [15, 20], (patients, 2))
    odd = (measured[:, 0] - 125) * (measured[:, 1] - 105) > 0
    return measured, np.where(odd, "at risk", "not")


def main() -> None:
    clinics = {"Hill": clinic(2500, 1), "Bridge": clinic(3000, 2), "Harbour": clinic(3500, 3)}
    X, y = ({name: data[k] for name, data in clinics.items()} for k in (0, 1))
    with TemporaryDirectory() as folder:
        policies = {
            name: zerosum.Policy(population=name, data="synthetic", ledger=Path(folder, f"{name}.sqlite"))
            for name in clinics
        }
        net = zerosum.NeuralClassifier(
            classes=["not", "at risk"],
            lower=[60, 40],
            upper=[200, 200],
            center=[125, 105],
            scale=[15, 20],
            steps=60,
            evaluate_share=0.1,
            epsilon=2.0,
            unit="person",
            policies=policies,
        ).fit(X, y)
    low, high = net.accuracy_interval_
    print(f"bought: {net.accuracy_:.3f} of held-out patients are classified rightly ({low:.3f} to {high:.3f})")
    print(f"free, at Harbour: {net.score(X['Harbour'], y['Harbour']):.3f} of its own patients")
    print(*net.privacy_.sentences(), sep="\n")


if __name__ == "__main__":
    main()
