"""Shell completion: known names, and files with the right suffix."""

from __future__ import annotations

from pathlib import Path


def files(incomplete: str, *suffixes: str) -> list[str]:
    """Paths that start with `incomplete`: folders, and files with one of these suffixes."""
    typed = Path(incomplete)
    folder = typed if incomplete.endswith("/") else typed.parent
    head = "" if incomplete.endswith("/") else typed.name
    shown = "" if str(folder) == "." and not incomplete.startswith("./") else f"{str(folder).rstrip('/')}/"
    found = []
    try:
        for path in sorted(folder.expanduser().iterdir()):
            if not path.name.startswith(head) or (path.name.startswith(".") and not head.startswith(".")):
                continue
            if path.is_dir():
                found.append(f"{shown}{path.name}/")
            elif path.suffix in suffixes:
                found.append(f"{shown}{path.name}")
    except OSError:
        return []
    return found


def studies(incomplete: str) -> list[str]:
    return files(incomplete, ".toml")


def schemes(incomplete: str) -> list[str]:
    from zerosum.kernel.schemes import SCHEMES

    return [name for name in ("all", *SCHEMES) if name.startswith(incomplete)]


def noisy_schemes(incomplete: str) -> list[str]:
    from zerosum.kernel.schemes import SCHEMES

    return [name for name, facts in SCHEMES.items() if facts.noisy and name.startswith(incomplete)]


def mistakes(incomplete: str) -> list[str]:
    from zerosum.audit.demonstrations import MISTAKES

    return [name for name in MISTAKES if name.startswith(incomplete)]


def experiments(incomplete: str) -> list[str]:
    from zerosum.papers.figures import EXPERIMENTS

    return [name for name in EXPERIMENTS if name.startswith(incomplete)]
