"""Modules that a start of Zerosum loads. The times are measured by benchmarks/startup.py."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

import zerosum
from zerosum import cli
from zerosum.cli.app import app

NUMERICAL = (
    "numpy",
    "scipy",
    "sklearn",
    "pydantic",
    "cryptography",
    "matplotlib",
    "array_api_compat",
    "dp_accounting",
    "pyarrow",
)
OWN = ("zerosum.kernel", "zerosum.statistics", "zerosum.algorithms", "zerosum.study", "zerosum.report", "zerosum.site")
SUBPACKAGES = ("zerosum.algorithms", "zerosum.study", "zerosum.report", "zerosum.site", "zerosum.papers")
ACCOUNT = "account --scheme zero-sum --sites 5 --colluders 1 --sensitivity 1 --delta 1e-5 --epsilon 1"


def loaded_modules(code: str) -> set[str]:
    """Names of the modules in a new process after it ran `code`, which must succeed."""
    report = "import sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def command(line: str) -> str:
    return f"from zerosum.cli import _run; assert _run({line.split()}) == 0"


def below(modules: set[str], packages: tuple[str, ...]) -> list[str]:
    return sorted(name for name in modules if name.startswith(tuple(f"{package}." for package in packages)))


def test_import_of_the_package_loads_no_numerical_library() -> None:
    modules = loaded_modules("import zerosum")
    assert sorted(modules & {*NUMERICAL, "rich", "typer", *OWN}) == []
    assert {name for name in modules if name.startswith("zerosum")} == {"zerosum", "zerosum.errors", "zerosum.version"}


def test_import_of_a_submodule_from_the_package_loads_no_algorithm() -> None:
    modules = loaded_modules("from zerosum import version")
    assert below(modules, SUBPACKAGES) == []


def test_help_of_all_commands_loads_no_numerical_library() -> None:
    modules = loaded_modules(command("--help"))
    assert sorted(modules & {*NUMERICAL}) == []
    assert below(modules, SUBPACKAGES) == []


def test_account_loads_the_kernel_and_special_functions_only() -> None:
    modules = loaded_modules(command(ACCOUNT))
    heavy = {"scipy.optimize", "scipy.stats", "scipy.linalg", "scipy.sparse", "sklearn", "matplotlib", "dp_accounting"}
    assert sorted(modules & heavy) == []
    assert below(modules, (*SUBPACKAGES, "zerosum.statistics", "zerosum.noise", "zerosum.secagg")) == []
    others = {f"zerosum.cli.{name}" for names in cli.MODULES.values() for name in names} - {"zerosum.cli.account"}
    assert sorted(modules & others) == []


def test_use_of_a_program_loads_neither_plots_nor_papers() -> None:
    modules = loaded_modules("import zerosum; zerosum.algorithms.MeanProgram; zerosum.run")
    heavy = {"scipy.optimize", "scipy.stats", "sklearn", "matplotlib", "dp_accounting", "nibabel", "starlette", "rich"}
    assert sorted(modules & heavy) == []
    assert below(modules, ("zerosum.papers", "zerosum.watch", "zerosum.flare", "zerosum.audit")) == []


@pytest.mark.parametrize("name", sorted(cli.MODULES))
def test_command_table_names_the_modules_that_register_a_command(name: str) -> None:
    cli.load()
    found = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined] # the application is a group
    inner = [*getattr(found, "commands", {}).values()]
    callbacks = [each.callback for each in (*inner, found) if each.callback is not None]
    assert {each.__wrapped__.__module__ for each in callbacks} == {f"zerosum.cli.{each}" for each in cli.MODULES[name]}


def test_command_table_has_every_command() -> None:
    cli.load()
    assert set(cli.MODULES) == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined] # as above


def test_public_names_are_listed_and_are_loaded_once() -> None:
    assert set(zerosum.__all__) <= set(dir(zerosum))
    for name in zerosum.__all__:
        assert getattr(zerosum, name) is vars(zerosum)[name]


def test_public_names_are_imported_for_type_checkers_from_their_modules() -> None:
    tree = ast.parse(Path(zerosum.__file__).read_text(encoding="utf-8"))
    (guarded,) = (each for each in tree.body if isinstance(each, ast.If))
    imports = [each for each in guarded.body if isinstance(each, ast.ImportFrom)]
    found = {alias.name: each.module for each in imports for alias in each.names}
    assert found == {**zerosum._MODULES, "algorithms": "zerosum"}
    assert set(zerosum.__all__) == {*found, "ZerosumError", "__version__"}


@pytest.mark.parametrize(
    ("name", "hint"), [("TopicsProgram", "zerosum.algorithms.TopicsProgram"), ("no_such_name", "no_such_name")]
)
def test_unknown_public_name_raises_attribute_error(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(zerosum, name)
    assert hint in str(raised.value)
