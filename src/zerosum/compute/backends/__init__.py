"""Numerical back ends: bit-independent NumPy operations, C kernels and fused GPU kernels."""
