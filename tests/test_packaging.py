"""What a package on an index has: a licence, metadata, a version everywhere, and all of its source."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import zerosum
from called import zerosum as command

ROOT = Path(__file__).parents[1]


def test_the_version_is_said_everywhere(tmp_path: Path) -> None:
    done = command("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, f"zerosum {zerosum.__version__}")
    assert find_spec("zerosum.__main__") is not None
    module = [sys.executable, "-m", "zerosum", "--version"]
    said = subprocess.run(module, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"zerosum {zerosum.__version__}"


def test_the_licence_is_there_and_is_the_one_that_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert project["authors"]
    assert any(each.startswith("Programming Language :: Python :: 3.13") for each in project["classifiers"])


def test_the_source_distribution_is_said_to_hold_everything() -> None:
    said = (ROOT / "MANIFEST.in").read_text()
    for folder in ("docs", "docsite", "examples", "tests", "benchmarks", "deploy"):
        assert re.search(rf"^graft {folder}$", said, re.MULTILINE)


PRESSED = """
import importlib.abc, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever runs these tests may ignore it
class Press(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Press())
from zerosum_command import main
main()
"""


@pytest.mark.parametrize("module", ["zerosum", "numpy", "pydantic", "zerosum.cli", "zerosum.cli.watching"])
def test_ctrl_c_while_it_loads_ends_quietly(module: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PRESSED, module], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_the_script_is_the_command_line(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["zerosum"].partition(":")
    code = f"import sys; sys.argv[0] = 'zerosum'; from {module} import {name}; {name}()"
    said = subprocess.run(
        [sys.executable, "-c", code, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == f"zerosum {zerosum.__version__}"
