"""Shell completion: known names, and files with the right suffix.

Each function takes the beginning of a word that the user has typed and returns the words that could complete it. The
shell starts a new process for each press of the tab key, so names are imported inside the functions. A function raises
no error: an exception would appear in the middle of the user's line.
"""

from __future__ import annotations

from pathlib import Path


def files(incomplete: str, *suffixes: str) -> list[str]:
    """Paths that start with `incomplete`: folders, and files with one of these suffixes.

    Parameters
    ----------
    incomplete : str
        What was typed so far, perhaps with folders; `~` stands for the home folder.
    suffixes : str
        Suffixes with their dot.

    Returns
    -------
    list of str
        Paths in the form that was typed, relative or absolute, because the shell replaces the typed word by them.
        Folders end with `/`.
    """
    typed = Path(incomplete)
    folder = typed if incomplete.endswith("/") else typed.parent
    head = "" if incomplete.endswith("/") else typed.name
    # The prefix of every answer, as the user typed it: `Path` drops a leading `./`, which the shell would then not
    # match.
    shown = "" if str(folder) == "." and not incomplete.startswith("./") else f"{str(folder).rstrip('/')}/"
    paths = []
    try:
        for path in sorted(folder.expanduser().iterdir()):
            # Hidden files are offered only after a dot, as shells do.
            if not path.name.startswith(head) or (path.name.startswith(".") and not head.startswith(".")):
                continue
            if path.is_dir():
                paths.append(f"{shown}{path.name}/")
            elif path.suffix in suffixes:
                paths.append(f"{shown}{path.name}")
    # The folder does not exist or cannot be read: nothing to offer.
    except OSError:
        return []
    return paths


def studies(incomplete: str) -> list[str]:
    """Study files, and folders on the way to them."""
    return files(incomplete, ".toml")


def schemes(incomplete: str) -> list[str]:
    """Names of all schemes, and `all`."""
    from zerosum.kernel.schemes import SCHEMES

    return [name for name in ("all", *SCHEMES) if name.startswith(incomplete)]


def noisy_schemes(incomplete: str) -> list[str]:
    """Names of the schemes that add noise: the others have no cost to account for."""
    from zerosum.kernel.schemes import SCHEMES

    return [name for name, facts in SCHEMES.items() if facts.noisy and name.startswith(incomplete)]


def mistakes(incomplete: str) -> list[str]:
    """Names of the programs with a wrong sensitivity that an audit must detect."""
    from zerosum.audit.demonstrations import MISTAKES

    return [name for name in MISTAKES if name.startswith(incomplete)]


def experiments(incomplete: str) -> list[str]:
    """Names of the figures of the papers."""
    from zerosum.papers.figures import EXPERIMENTS

    return [name for name in EXPERIMENTS if name.startswith(incomplete)]
