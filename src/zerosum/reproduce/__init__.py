"""The papers' experiments, one command each; on public or synthetic data only."""

from __future__ import annotations

from zerosum.reproduce.pca import NAMES, reproduce

__all__ = ["NAMES", "reproduce"]
