"""DP-EBM and EBM on the tables of benchmarks/additive.py, in an environment of their own.

    python -m venv ebm && ebm/bin/pip install interpret-core
    ebm/bin/python benchmarks/additive_peers.py TABLE.npz --epsilon 0.5 1 4 --seeds 10 [--delta 1e-6] [--plain]

One trusted holder has all rows (pooled). For each epsilon the best of a small grid by the mean test score is shown: the
choice looks at the test rows and is not paid for. `TABLE.npz` is written by `benchmarks/additive.py --write`.
"""

# mypy: disable-error-code="import-not-found"
# interpret is in an environment of its own
from __future__ import annotations

import argparse
from itertools import product
from typing import Any

import numpy as np
from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor
from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor
from sklearn.metrics import r2_score, roc_auc_score


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("table")
    asked.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 4.0])
    asked.add_argument("--delta", type=float, default=1e-6)
    asked.add_argument("--seeds", type=int, default=10)
    asked.add_argument("--bins", type=int, nargs="+", default=[32])
    asked.add_argument("--rounds", type=int, nargs="+", default=[100, 300])
    asked.add_argument("--plain", action="store_true", help="EBM without privacy instead")
    given = asked.parse_args()
    with np.load(given.table, allow_pickle=False) as data:
        train, test, classes = data["train"], data["test"], bool(data["classes"])
        nominal, low, high = data["nominal"], data["low"], data["high"]
    types = ["nominal" if each else "continuous" for each in nominal]
    x, y, x_test, y_test = train[:, :-1], train[:, -1], test[:, :-1], test[:, -1]

    def rows(table: Any) -> Any:
        return np.clip(
            np.nan_to_num(table, nan=-1.0), np.where(nominal, -1, low[:-1]), np.where(nominal, 1e9, high[:-1])
        )

    def score(model: Any) -> float:
        if classes:
            return float(roc_auc_score(y_test, model.predict_proba(rows(x_test))[:, 1]))
        return float(r2_score(y_test, np.clip(model.predict(rows(x_test)), low[-1], high[-1])))

    if given.plain:
        kind = ExplainableBoostingClassifier if classes else ExplainableBoostingRegressor
        print(f"EBM without pairs: {score(kind(feature_types=types, interactions=0).fit(rows(x), y)):.4f}")
        return
    kind = DPExplainableBoostingClassifier if classes else DPExplainableBoostingRegressor
    for epsilon in given.epsilon:
        best, line = -np.inf, ""
        for bins, rounds in product(given.bins, given.rounds):
            scores = []
            for seed in range(given.seeds):
                more = {} if classes else {"privacy_target_min": low[-1], "privacy_target_max": high[-1]}
                bounds = {at: (float(a), float(b)) for at, (a, b) in enumerate(zip(low[:-1], high[:-1], strict=True))}
                model = kind(
                    feature_types=types,
                    epsilon=epsilon,
                    delta=given.delta,
                    max_bins=bins,
                    max_rounds=rounds,
                    privacy_bounds=bounds,
                    random_state=seed,
                    n_jobs=1,
                    **more,
                )
                scores.append(score(model.fit(rows(x), np.clip(y, low[-1], high[-1]) if not classes else y)))
            if np.mean(scores) > best:
                best = float(np.mean(scores))
                line = f"{best:.4f} +- {np.std(scores):.4f}, lowest {min(scores):.4f}, {bins} bins, {rounds} rounds"
        print(f"DP-EBM, epsilon {epsilon:g}: {line}", flush=True)


if __name__ == "__main__":
    main()
