"""Zerosum over NVIDIA FLARE, which carries bytes to sites' sockets and nothing else. Needs the extra `nvflare`.

Nothing of Zerosum imports these modules: FLARE does, by the names that a job or a kit gives it. `jobs` alone is for the
command line, and needs no FLARE.
"""
