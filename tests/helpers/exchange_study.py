"""The study of the benchmarks of exchanges over several carriers."""

from __future__ import annotations

from pathlib import Path

from helpers.deployment import Deployment


def study_of(deployment: Deployment, short: bool) -> Path:
    """An ICA of fifteen rounds, or a mean of one."""
    if short:
        return deployment.study(name="ica")
    return deployment.study("ica", name="ica", ranges="", parameters="n_components = 2\nrounds = 11")
