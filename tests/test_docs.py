"""Every command and every block of code on README and the pages of docs, word for word.

A block or command that stands on no list here fails `test_nothing_on_a_page_is_forgotten`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown import markdown

from accessible import mended
from formulas import typeset
from helpers.command_line import zerosum
from reference import every_command
from views import VIEWS, fill
from zerosum import Adjacency, Policy, Study
from zerosum.algorithms import ALGORITHMS
from zerosum.kernel.request import PrivateSum, Release
from zerosum.site.schema import DataSchema
from zerosum.statistics import BUILTIN
from zerosum.study import SiteFile
from zerosum.study.site_schema import check_schema

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    """Indented lines that begin with a command, without their comments; a backslash joins lines."""
    text = re.sub(r" \\\n\s+", " ", (ROOT / page).read_text())
    return [line.split("  #")[0].strip() for line in re.findall(r"^    ((?:zerosum|make|pip) .*)$", text, re.MULTILINE)]


# ---- Python ------------------------------------------------------------------------------------------------------


def three_tables() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.uniform([20, 90], [90, 200], (60, 2)) for name in ("north", "east", "south")}


def images_of_digits() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    sites = ("north", "east", "south")
    policies = {
        name: Policy.throwaway(name, Path(f"{name}.sqlite"), unit="record").model_copy(update={"data": "public"})
        for name in sites
    }
    return {
        "policies": policies,
        "images_by_site": {name: rng.uniform(0, 255, (120, 64)) for name in sites},
        "labels_by_site": {name: np.arange(120) % 10 for name in sites},
        "own_images": rng.uniform(0, 255, (5, 64)),
    }


def brains() -> dict[str, Any]:
    pytest.importorskip("nibabel")
    from helpers.brain_images import SHAPE, bids, save

    regions = (np.arange(np.prod(SHAPE)) // 8).reshape(SHAPE)  # 14 of them, and what lies outside
    save(Path("grid/atlas.nii.gz"), regions.astype(np.int16))
    bids(Path("north/derivatives/fmriprep"), {f"sub-{at:02}": [("task-rest", 20)] for at in range(3)})
    bids(Path("public/derivatives/fmriprep"), {f"sub-{at:02}": [("task-rest", 40)] for at in range(5)})
    save(Path("networks.nii.gz"), np.random.default_rng(0).normal(size=(*SHAPE, 2)))
    return {}


def a_result() -> dict[str, Any]:
    from helpers.small_studies import carry_out, make, make_sites

    return {"result": carry_out(make(), make_sites(Path()))}


def program_parts() -> dict[str, Any]:
    from zerosum.kernel.quantity import Quantity
    from zerosum.statistics.vectors import VectorSum

    return {"PrivateSum": PrivateSum, "VectorSum": VectorSum, "Quantity": Quantity}


# what a block takes for granted; those without an entry stand alone
TAKEN: dict[tuple[str, int], Callable[[], dict[str, Any]]] = {
    ("docs/index.md", 0): three_tables,
    ("docs/collaboration.md", 0): images_of_digits,
    ("docs/imaging.md", 0): brains,
    ("docs/report.md", 0): a_result,
    ("docs/architecture.md", 0): program_parts,
}
CODE = [(page, at) for page in PAGES for at in range(len(blocks(page, "python")))]
SLOW = {("docs/networks.md", 0), ("docs/collaboration.md", 0), ("docs/ica.md", 0), ("docs/training.md", 0)}


@pytest.mark.parametrize(
    ("page", "at"), [pytest.param(*each, marks=[pytest.mark.slow] if each in SLOW else []) for each in CODE]
)
def test_docs_python_block_runs(page: str, at: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chdir(tmp_path):
        names = TAKEN.get((page, at), dict)()
        exec(compile(blocks(page, "python")[at], f"{page}, block {at + 1}", "exec"), names)
    if page == "docs/architecture.md":  # a method: drive it as a test would
        from types import SimpleNamespace

        from zerosum.kernel.quantity import columns_axis

        program = names["program"](SimpleNamespace(column_axis=columns_axis("abc")), Adjacency.REPLACE_ONE)
        assert isinstance(next(program), PrivateSum)
        with pytest.raises(StopIteration) as done:
            program.send(Release(np.ones(3), 0.1, 10.0, ("a",)))
        assert done.value.value["mean"].labelled() == {"a": 0.1, "b": 0.1, "c": 0.1}


# ---- study files -------------------------------------------------------------------------------------------------

SITES = [{"name": name} for name in ("north", "east", "south")]
TERMS: dict[str, Any] = {"name": "a page's", "unit": {"kind": "person"}, "privacy": {"epsilon": 1.0, "delta": 1e-5}}
MEAN = TERMS | {"algorithm": "mean", "sites": SITES}
# what a part of a study file is a part of
REST: dict[tuple[str, int], dict[str, Any]] = {
    ("docs/missing.md", 0): MEAN,
    ("docs/dossier.md", 0): MEAN | {"parameters": {"columns": ["a"], "lower": [0], "upper": [1]}},
    ("docs/describe.md", 1): TERMS | {"sites": SITES},
    ("docs/mixtures.md", 0): {"sites": SITES},
    ("docs/pca.md", 0): {"sites": SITES},
    ("docs/topics.md", 0): {"sites": SITES},
    ("docs/regression.md", 1): TERMS
    | {"algorithm": "poisson-regression", "parameters": {"evaluate_share": 0.1}, "sites": SITES},
    ("docs/collaboration.md", 0): TERMS | {"sites": [site | {"units": 500} for site in SITES]},
    ("docs/networks.md", 0): TERMS | {"algorithm": "neural-classifier", "sites": SITES},
}
# a site's file and a policy; those of deployments, which tests/flare/test_guide.py and tests/cli/test_cli_key.py have
OTHERS = {
    ("docs/study.md", 1),
    ("docs/study.md", 2),
    ("docs/tutorial.md", 1),
    ("docs/steward.md", 0),
    ("docs/steward.md", 1),
    ("docs/deployment.md", 0),
    ("docs/deployment.md", 2),
    ("docs/deployment.md", 3),
    ("docs/gpu.md", 0),
    ("docs/secure-sum.md", 1),
    ("docs/sources.md", 0),
    ("docs/sources.md", 1),
    ("docs/sources.md", 2),
    ("docs/sources.md", 3),
    ("docs/omop.md", 0),
    ("docs/converters.md", 0),
    ("docs/omop.md", 1),
    ("docs/missing.md", 1),  # of a public model, which tests/study/test_site_data.py has
}
STUDIES = [(page, at) for page in PAGES for at in range(len(blocks(page, "toml"))) if (page, at) not in OTHERS]


@pytest.mark.parametrize(("page", "at"), STUDIES)
def test_docs_study_file_can_be_planned(page: str, at: int, tmp_path: Path) -> None:
    said = tomllib.loads(blocks(page, "toml")[at])
    rest = REST.get((page, at), {})
    said = rest | said | {"sites": [*rest.get("sites", []), *said.get("sites", [])]}
    if page == "docs/deployment.md":  # in place of what `zerosum site init` prints
        said["sites"] = [site | {"identity": f"{at:064x}"} for at, site in enumerate(said["sites"])]
    with chdir(tmp_path):
        if "imaging" in said:
            brains()
        Path("words.txt").write_text("\n".join(f"word{at}" for at in range(40)))
        if page == "docs/omop.md":
            Path("variables.toml").write_text(blocks(page, "toml")[0])
        if page == "docs/networks.md":
            pytest.importorskip("torch")
        plan = Study(**said, folder=Path()).plan()
    assert plan.releases


def test_docs_site_and_policy_files_load(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(blocks("docs/study.md", "toml")[1])
    (tmp_path / "policy.toml").write_text(blocks("docs/study.md", "toml")[2])
    assert SiteFile.load(tmp_path / "site.toml").unit_column == "patient"
    assert Policy.load(tmp_path / "policy.toml").epsilon == 8.0
    (tmp_path / "site.toml").write_text(blocks("docs/deployment.md", "toml")[0])
    assert SiteFile.load(tmp_path / "site.toml").own_policy().study_epsilon == 2.0
    (tmp_path / "site.toml").write_text(blocks("docs/gpu.md", "toml")[0])
    assert SiteFile.load(tmp_path / "site.toml").device == "cuda"
    (tmp_path / "site.toml").write_text(blocks("docs/secure-sum.md", "toml")[1])
    assert list(SiteFile.load(tmp_path / "site.toml").children) == ["east", "west"]
    (tmp_path / "site.toml").write_text(blocks("docs/sources.md", "toml")[2])
    assert SiteFile.load(tmp_path / "site.toml").path.suffix == ".parquet"
    (tmp_path / "site.toml").write_text(blocks("docs/omop.md", "toml")[1])
    assert SiteFile.load(tmp_path / "site.toml").source is not None
    for page, at in (("docs/tutorial.md", 1), ("docs/steward.md", 0)):
        (tmp_path / "policy.toml").write_text(blocks(page, "toml")[at])
        assert Policy.load(tmp_path / "policy.toml").minimum_units == 100
    (tmp_path / "schema.toml").write_text(blocks("docs/steward.md", "toml")[1])
    assert DataSchema.load(tmp_path / "schema.toml").units == 303
    roster = tomllib.loads(blocks("docs/deployment.md", "toml")[2])["policy"]["roster"]
    assert list(map(len, roster.values())) == [2]  # the new identity and the old one


def test_docs_spellings_of_a_hospital_fit_its_file(tmp_path: Path) -> None:
    (tmp_path / "ward.csv").write_text(blocks("docs/sources.md", "text")[0], encoding="latin-1")
    entries = {"delimiter": ";", "encoding": "latin-1", "unit_column": "Patient", "data": Path("ward.csv")}
    site = SiteFile(name="ward", folder=tmp_path, **entries)
    schema = DataSchema.model_validate(tomllib.loads(blocks("docs/sources.md", "toml")[3]))
    policy = Policy(population="p", adjacency="add-remove", minimum_units=1)
    found = check_schema(site, schema, policy)
    assert (found.faults, found.warnings) == ([], [])


# ---- commands ------------------------------------------------------------------------------------------------------

# run by other tests, or by nobody here, and why
GUIDE = "docs/deployment.md"  # whose blocks of commands tests/flare/test_guide.py runs
TUTORIAL = "docs/tutorial.md"  # whose blocks test_the_tutorial_word_for_word runs
ELSEWHERE = {
    "make demo": "tests/test_demo.py",
    "make test": "what runs this",
    "zerosum audit": "tests/cli/test_cli_audit.py",
    "zerosum site init": "tests/cli/test_cli_site.py",
    "zerosum site run": "tests/cli/test_cli_site.py",
    "zerosum site fetch": "tests/cli/test_cli_site.py",
    "zerosum site convert-redcap": "tests/cli/test_cli_convert.py",
    "zerosum site convert-fhir": "tests/cli/test_cli_convert.py",
    "zerosum site schema": "tests/study/test_site_schema.py",
    "zerosum site rotate-key": "tests/cli/test_cli_key.py",
    "zerosum site withdraw": "tests/cli/test_cli_key.py",
    "zerosum site report": "tests/cli/test_cli_report.py",
    "zerosum site backup": "tests/cli/test_cli_operate.py",
    "zerosum site restore": "tests/cli/test_cli_operate.py",
    "zerosum site upgrade": "tests/cli/test_cli_operate.py",
    "zerosum site status --desk": "tests/site/test_desk.py",
    "zerosum site plan": "tests/site/test_desk.py",
    "zerosum site approve": "tests/site/test_desk.py",
    "zerosum site refuse": "tests/site/test_desk.py",
    "zerosum site ledger": "tests/site/test_desk.py",
    "zerosum site audit": "tests/cli/test_cli_operate.py",
    "zerosum coordinator": "tests/cli/test_cli_coordinator.py",
    "zerosum verify dossier": "tests/cli/test_cli_dossier.py",
    "zerosum dossier": "tests/cli/test_cli_dossier.py",
    "zerosum watch": "tests/cli/test_cli_watch.py",
    "zerosum synth": "tests/cli/test_cli_synth.py",
    "zerosum flare": "tests/flare/test_jobs.py",
    "zerosum flower": "tests/flower/test_flower.py",
    "zerosum provision": "tests/flare/test_flare.py",
}


def elsewhere(command: str) -> bool:
    return any(command.startswith(each) for each in ELSEWHERE)


def study_folder(folder: Path) -> None:
    """The README's study, with data for every site, and their own files."""
    rng = np.random.default_rng(1)
    (folder / "study.toml").write_text(blocks("README.md", "toml")[0])
    for name in ("north", "east", "south"):
        rows = rng.uniform([20, 90, 150], [90, 200, 300], (40, 3))
        more = [f"{'fm'[at % 2]},{('no', 'yes')[at % 3 > 0]}" for at in range(40)]
        text = "age,systolic,chol,sex,smoker\n"  # some cholesterol is missing
        for at, ((a, b, c), words) in enumerate(zip(rows, more, strict=True)):
            text += f"{a:.1f},{b:.1f},{'' if at % 7 == 0 else f'{c:.0f}'},{words}\n"
        (folder / f"{name}.csv").write_text(text)
        (folder / f"{name}.toml").write_text(f'name = "{name}"\ndata = "{name}.csv"\n')


@pytest.mark.parametrize("page", [page for page in PAGES if any(not elsewhere(each) for each in commands(page))])
def test_docs_commands_run_as_printed(page: str, tmp_path: Path) -> None:
    study_folder(tmp_path)
    if page == "docs/ica.md":
        images_study(tmp_path)
    for command in commands(page):
        if elsewhere(command):
            continue
        program, *arguments = shlex.split(command)
        assert program == "zerosum"
        done: subprocess.CompletedProcess[str] = zerosum(*arguments, cwd=tmp_path)
        assert done.returncode == 0, (command, done.stdout, done.stderr)


BLOCK = re.compile(r"(?:<!-- ([a-z ]+)(?:: (\S+))? -->\n)?```(python|toml|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_docs_tutorial_commands_give_printed_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are saved as their sentences say, and commands are run in their order; installing is not."""
    ran, said = [], ""
    for mark, name, language, text in BLOCK.findall((ROOT / TUTORIAL).read_text()):
        if mark == "file":
            assert f"`{name}`" in (ROOT / TUTORIAL).read_text()
            (tmp_path / name).write_text(text)
        elif mark != "by hand":
            assert language == "sh"
            for line in text.splitlines():
                command, _, remark = line.partition("  # ")
                said += run_line(shlex.split(command), tmp_path, monkeypatch, code=2 if remark == "refused" else 0)
                ran.append(shlex.split(command)[:2])
    assert [line for line in ran if line[0] == "zerosum"].count(["zerosum", "run"]) == 3
    assert (tmp_path / "result" / "result.json").exists()
    assert not (tmp_path / "again").exists()
    assert (tmp_path / "plan.json").exists()
    assert "11 × residual_moment" in said  # what is alike stands in one line
    assert "12 × score_moment" in said
    assert re.search(r"3 to 13 .* 2 to 12 .* residual_moment", said)


def run_line(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> str:
    match words:
        case ["export", setting]:
            name, value = setting.split("=")
            monkeypatch.setenv(name, value.replace("$PWD", str(folder)))
        case ["python", script]:
            with chdir(folder):
                exec(compile((folder / script).read_text(), script, "exec"), {"__name__": "__main__"})
        case _:
            assert words[0] == "zerosum"
            done = zerosum(*words[1:], cwd=folder)
            assert done.returncode == code, (words, done.stdout, done.stderr)
            return done.stdout
    return ""


def images_study(folder: Path) -> None:
    """A small data set of derivatives for the study of docs/ica.md: its commands, on images of ours."""
    pytest.importorskip("nilearn")
    from helpers.brain_images import atlas, participants, save, sidecar, table, volumes

    text = blocks("docs/ica.md", "toml")[0].replace("n_components = 10", "n_components = 2")
    (folder / "study.toml").write_text(text)
    with chdir(folder):
        save(Path("grid/atlas.nii.gz"), atlas())
        names = re.findall(r'"(\w+)"', re.search(r"confounds = \[(.*?)\]", text)[1])  # type: ignore[index]
        for number, site in enumerate(("north", "east")):
            place = Path(site, "derivatives", "fmriprep")
            people = [f"sub-{at:02}" for at in range(12)]
            participants(place, people)
            sidecar(place / "dataset_description.json", Name="made up", BIDSVersion="1.8.0", DatasetType="derivative")
            for at, person in enumerate(people):
                stem = place / person / "func" / f"{person}_task-rest"
                image = f"{stem.name}_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz"
                save(stem.with_name(image), volumes(100 * number + at, 60))
                rng = np.random.default_rng(at)
                table(
                    stem.with_name(f"{stem.name}_desc-confounds_timeseries.tsv"),
                    {name: rng.normal(size=60).round(3) for name in names},
                )


def test_docs_every_block_and_command_is_tested() -> None:
    """Code of other languages is output; every other fence is one of those above."""
    for page in PAGES:
        for language in re.findall(r"^```(\w+)$", (ROOT / page).read_text(), re.MULTILINE):
            known = {"python", "toml", "json", "text"} | ({"sh"} if page in (GUIDE, TUTORIAL) else set())
            assert language in known, f"{page} has a block of {language!r} that nobody runs"
        for command in commands(page):
            assert command.startswith("zerosum ") or elsewhere(command), f"nobody runs {command!r} of {page}"
    for each in [*TAKEN, *REST, *OTHERS, *SLOW]:
        assert each in {*CODE, *STUDIES, *OTHERS}, f"{each} is on no page"
    for where in ELSEWHERE.values():
        assert (ROOT / where).exists() or where == "what runs this"


def test_docs_options_are_listed_in_reference_only() -> None:
    """By the reference, which is made from the code; the page of commands says what they are for."""
    text = (ROOT / "docs" / "cli.md").read_text()
    told = re.findall(r"^(?:#+ .*--\w.*|\| `--\w.*|\| [^|]*\[--\w.*)$", text, re.MULTILINE)
    assert [line for line in told if "what-if" not in line and "zerosum compare" not in line] == []
    headings = {
        words for line in re.findall(r"^## (.*)$", text, re.MULTILINE) for words in re.findall(r"`zerosum (\w+)", line)
    }
    assert headings == {words.partition(" ")[0] for words in every_command()}


def test_docs_study_page_lists_every_statistic() -> None:
    (line,) = [
        each for each in (ROOT / "docs" / "study.md").read_text().splitlines() if each.startswith("| `statistics` |")
    ]
    assert [name for name in BUILTIN if f"`{name}`" not in line] == []


# ---- formulas ------------------------------------------------------------------------------------------------------


def drawn(text: str) -> str:
    settings = {"pymdownx.arithmatex": {"generic": True, "inline_syntax": ["dollar"], "block_syntax": ["dollar"]}}
    return typeset(markdown(text, extensions=["tables", "fenced_code", *settings], extension_configs=settings))


@pytest.mark.parametrize("page", [page for page in PAGES if "$" in (ROOT / page).read_text()])
def test_docs_formulas_are_typeset(page: str) -> None:
    text = drawn((ROOT / page).read_text())
    assert "arithmatex" not in text
    assert "$" not in re.sub(r"<code.*?</code>", "", text, flags=re.DOTALL), "a dollar that begins no formula"


def test_docs_formula_becomes_mathml_and_code_stays_code() -> None:
    assert re.fullmatch(r"<p><math.*<msqrt>.*</math> and <code>\$x\$</code></p>", drawn(r"$\sqrt{2}$ and `$x$`"))
    with pytest.raises(ValueError, match="nosuchcommand"):
        drawn(r"$\nosuchcommand x$")


def test_docs_html_search_has_label_and_code_is_focusable() -> None:
    search = '<div class="md-search" data-md-component="search" role="dialog">'
    assert 'aria-label="Search"' in mended(search)
    assert mended("<pre><span></span><code>x</code>") == '<pre><span></span><code tabindex="0">x</code>'


def test_docs_every_picture_has_four_views_and_is_used() -> None:
    """And none lies there that no page shows."""
    asked = {
        name: page
        for page in PAGES
        for name in re.findall(r"^<!-- views: ([\w-]+), .+ -->$", (ROOT / page).read_text(), re.MULTILINE)
    }
    assert set(asked) >= {
        *ALGORITHMS,
        "mean-page",
        "watch-coordinator-study-during",
        "watch-coordinator-study-finished",
    }
    there = {path.name for path in (ROOT / "docs" / "pictures").iterdir()}
    assert there == {f"{name}-{view}.webp" for name in asked for view in VIEWS}
    shown = fill("<!-- views: mean, Means -->")
    assert shown.count("loading=lazy") == len(VIEWS) == 4
    assert fill("no pictures") == "no pictures"
