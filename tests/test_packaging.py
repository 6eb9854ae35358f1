"""What a package on an index has: a licence, metadata, a version everywhere, and all of its source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import zerosum
from helpers.command_line import zerosum as command

ROOT = Path(__file__).parents[1]


def test_version_option_prints_package_version(tmp_path: Path) -> None:
    done = command("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, f"zerosum {zerosum.__version__}")
    assert find_spec("zerosum.__main__") is not None
    module = [sys.executable, "-m", "zerosum", "--version"]
    said = subprocess.run(module, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"zerosum {zerosum.__version__}"


def test_licence_file_matches_project_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert project["authors"]
    assert any(each.startswith("Programming Language :: Python :: 3.13") for each in project["classifiers"])


def test_source_distribution_manifest_has_every_folder() -> None:
    said = (ROOT / "MANIFEST.in").read_text()
    for folder in ("docs", "docsite", "examples", "tests", "benchmarks", "deploy", "src/native"):
        assert re.search(rf"^graft {folder}$", said, re.MULTILINE)


def built(source: Path, out: Path, kind: str, **environment: str) -> Path:
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=source, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return out / done.stdout.splitlines()[-1]


def test_source_distribution_and_wheel_have_kernels(tmp_path: Path) -> None:
    """A compiler that fails leaves them out, and NumPy computes."""
    source = tmp_path / "source"
    left_out = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=left_out)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    with tarfile.open(built(source, tmp_path, "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("zerosum-*/")
    assert (unpacked / "setup.py").exists()
    kernels = {path.name for path in (ROOT / "src" / "native").iterdir()}
    assert kernels == {path.name for path in (unpacked / "src" / "native").iterdir()}
    assert set(re.findall(r"src/native/([\w.]+)", (ROOT / "setup.py").read_text())) == kernels
    for compiler in ("/bin/false", shutil.which("gcc")):
        if compiler is None:
            continue
        wheel = built(unpacked, tmp_path, "wheel", CC=compiler)
        assert re.search(r"-cp311-abi3-\w+\.whl$", wheel.name)
        installed = tmp_path / Path(compiler).name
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(installed)
        folders = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
        assert folders == {"zerosum", "zerosum_command.py"}
        templates = {path.relative_to(ROOT / "src") for path in (ROOT / "src").glob("zerosum/*/templates/*")}
        assert len(templates) > 5
        assert all((installed / path).is_file() for path in templates)
        code = "from zerosum.compute.backends import native; print(native.__file__, native.present())"
        environment = {**os.environ, "PYTHONPATH": str(installed), "ZEROSUM_NATIVE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        where, present = done.stdout.split()
        assert Path(where).is_relative_to(installed)
        assert present == str(compiler != "/bin/false")


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


@pytest.mark.parametrize("module", ["zerosum", "typer", "zerosum.cli", "zerosum.cli.watch"])
def test_cli_interrupted_during_import_exits_quietly(module: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PRESSED, module], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_console_script_is_command_line(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["zerosum"].partition(":")
    code = f"import sys; sys.argv[0] = 'zerosum'; from {module} import {name}; {name}()"
    said = subprocess.run(
        [sys.executable, "-c", code, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == f"zerosum {zerosum.__version__}"
