"""`zerosum plan`, `check`, `run`, `demo` and `version`.

`plan`, `check` and `run` follow a study file through its life: what would be released and at what cost (no data are
read), whether the data of a site fit (data are read, nothing is spent), and the run itself with all sites in this
process. In production each site runs `zerosum site run` beside its data, and the coordinator `zerosum coordinator run`;
plan and accounting are the same.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from zerosum.cli import terminal
from zerosum.cli.app import Anyway, Json, ResultFolder, SiteFiles, StudyFile, app, load_study
from zerosum.cli.forecast import (
    Correlation,
    Guess,
    Like,
    People,
    Rows,
    RSquared,
    Separation,
    Shape,
    SpectrumOption,
    Whole,
    assumptions_of,
    print_forecasts,
)
from zerosum.errors import BadParameter, BudgetExceeded, CheckFailed, DataWarning
from zerosum.protocol.progress import Progress


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures and the figures.")] = Path("zerosum-demo"),
    repeats: Annotated[int, typer.Option(min=2, help="Number of runs of each scheme.")] = 80,
    people: Annotated[int, typer.Option(min=20, help="Number of people with brain scans at each site.")] = 256,
    json_: Json = False,
) -> None:
    """Demonstration with four synthetic hospitals: one question under every scheme at equal epsilon, and brain maps."""
    from zerosum import demo as module
    from zerosum import demo_maps
    from zerosum.report.json_text import finite

    with terminal.progress("asking every scheme") as on_step:
        demo_result = module.play(repeats, on_step)
    with terminal.progress("separating brains") as on_step:
        maps = demo_maps.play(people, on_step)
    picture, maps_picture = out / "accuracy.png", out / "maps.png"
    module.draw(demo_result, picture)
    demo_maps.draw(maps, maps_picture)
    report = module.write_report_of(demo_result, out / "report")
    record = demo_result.as_record() | {"maps": maps.as_record()}
    (out / "demo.json").write_text(json.dumps(finite(record), indent=2) + "\n")
    if json_:
        terminal.print_json(
            record | {"picture": str(picture), "maps_picture": str(maps_picture), "report": str(report)}
        )
        return
    hospitals = ", ".join(f"{name} ({size})" for name, size in demo_result.sizes.items())
    terminal.print_titled("Four hospitals", f": {hospitals}. The question: the mean of five clinical measurements.\n")
    # Noise variance in relation to a trusted party that holds all records, at equal epsilon: the price of not having
    # such a party.
    pooled = next(line.predicted for line in demo_result.lines if line.scheme == "pooled")
    table = Table("scheme", "trusted", "error %", "predicted", "var/pooled", "epsilon")
    for line in demo_result.lines:
        ratio = "" if line.predicted == 0 else f"{(line.predicted / pooled) ** 2:.2f}"
        spent = "infinite" if line.epsilon is None else f"{line.epsilon:.4f}"
        table.add_row(
            line.scheme,
            line.trusted,
            f"{100 * line.measured:.3f}",
            f"{100 * line.predicted:.3f}",
            ratio,
            spent,
        )
    terminal.show_table(table)
    terminal.show_report(demo_result.report)
    terminal.print_titled("\nBrain maps", f" ({maps.description}).\n")
    table = Table("maps", "epsilon", "with reduction", "correlation", "Amari index")
    for each in maps.lines:
        costs = ["none" if value is None else f"{value:.4g}" for value in (each.epsilon, each.with_reduction)]
        table.add_row(each.heading, *costs, f"{each.correlation:.3f}", f"{each.amari_index:.3f}")
    terminal.show_table(table)
    terminal.out.print(f"\npictures: {picture}, {maps_picture}", soft_wrap=True)
    terminal.out.print("\nThe study of the four hospitals as a report, to open in a browser and show to a colleague:")
    terminal.print_titled(f"{report}", "")


@app.command()
def plan(
    study: StudyFile,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the plan to this file, to be approved and run; with --what-if, the picture (.svg)."),
    ] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Forecast of the accuracy against epsilon, people, sites and colluders.")
    ] = False,
    target_error: Annotated[
        list[str] | None,
        typer.Option(help="With --what-if: find the smallest epsilon with this privacy error; NUMBER or NAME=NUMBER."),
    ] = None,
    people: People = None,
    guess: Guess = None,
    like: Like = None,
    spectrum: SpectrumOption = None,
    r_squared: RSquared = None,
    separation: Separation = None,
    rows: Rows = None,
    correlation: Correlation = None,
    shape: Shape = None,
    whole: Whole = None,
    runs: Annotated[
        int | None, typer.Option(min=8, help="Rehearsals for the study's own figures; by default 400, of losses 24.")
    ] = None,
    anyway: Anyway = False,
    json_: Json = False,
) -> None:
    """Show what a study will release and its cost at each site, before any data are read; with --what-if, a forecast of
    its accuracy."""
    from zerosum.report.record import privacy_report, write_whole
    from zerosum.study import Study, resolve

    options: dict[str, Any] = {"spectrum": spectrum, "r_squared": r_squared, "separation": separation, "rows": rows}
    options |= {"correlation": correlation, "shape": shape, "whole": whole}
    # A forecast is another output of the same study file; it makes many plans, so no single plan is written.
    if what_if:
        loaded = Study.load(study)
        assumptions = assumptions_of(loaded, guess, like, **options)
        given = target_error or ()
        print_forecasts(loaded, out, json_, people=people, assumptions=assumptions, targets=given, runs=runs)
        return
    # Options without effect are refused rather than ignored: the user would read the plan as a forecast.
    forecasting = (target_error, guess, people, like, *options.values())
    if runs is not None or any(each is not None and each != [] for each in forecasting):
        raise BadParameter(
            "--target-error, --people, --guess, --like, --spectrum, --r-squared, --separation, --rows, --correlation, "
            "--shape, --whole and --runs are options of a forecast: give --what-if"
        )
    loaded = Study.load(study)
    planned = loaded.plan()
    # The policies of sites that are in the study file are read already now. A plan above a cap is an error; other
    # refusals are listed, so that all of them can be settled together.
    refusals = list(loaded.refusals(planned))
    for refusal in refusals:
        if isinstance(refusal, BudgetExceeded):
            raise refusal
    report, describe = privacy_report(planned), resolve(loaded.build_algorithm(), planned).describe
    outlook = loaded.outlook(planned)
    poor = outlook is not None and not outlook.expected.enough and not anyway
    if out is not None and not poor:
        write_whole(out, planned.to_json())
    if json_:
        record = report.as_record() | {"describe": describe, "refusals": [str(each) for each in refusals]}
        terminal.print_json(record | {"outlook": None if outlook is None else outlook.as_record()})
        if outlook is not None and poor:
            outlook.check()
        return
    if describe:
        terminal.print_titled(report.algorithm, f": {describe}")
    terminal.show_report(report)
    terminal.show_warnings([f"it would be refused: {each}" for each in refusals])
    if outlook is not None:
        terminal.show_outlook(outlook.sentences)
        if poor:
            outlook.check()
    if out is not None:
        terminal.out.print(f"\nwritten to {out}, digest {planned.digest()}")


@app.command()
def check(
    study: StudyFile,
    site: SiteFiles = None,
    anyway: Anyway = False,
    json_: Json = False,
) -> None:
    """Check data, policy and budget for all faults that would stop a study at a site. Spends nothing; for stewards."""
    from zerosum.study.checking import check_study

    loaded = load_study(study, site)
    with terminal.study_progress() as observer:
        checks = check_study(loaded, observer)
    # The private parts of several sites lie on one machine only in a rehearsal.
    rehearsal = len(checks) > 1
    outlook = loaded.outlook()
    if json_:
        record = {"rehearsal": rehearsal, "sites": [each.as_record() for each in checks]}
        terminal.print_json(record | {"outlook": None if outlook is None else outlook.as_record()})
    else:
        if rehearsal:
            terminal.out.print(
                "A rehearsal: the private parts of several sites are here. In a real study each site checks its own "
                "part with 'zerosum check STUDY --site FILE' and does not share the output.",
                soft_wrap=True,
            )
        for each in checks:
            terminal.show_check(each.as_record())
        if outlook is not None:
            terminal.show_outlook(outlook.sentences)
    # The findings are printed above in full; only the exit code is left.
    if any(each.faults for each in checks):
        raise typer.Exit(CheckFailed.exit_code)
    if outlook is not None and not anyway:
        outlook.check()


@app.command()
def run(
    study: StudyFile,
    out: ResultFolder,
    plan: Annotated[
        Path | None, typer.Option(help="Run this approved plan; refused if the study has changed since.")
    ] = None,
    digest: Annotated[str | None, typer.Option(help="Digest of the approved plan; any other plan is refused.")] = None,
    site: SiteFiles = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A folder for checkpoints: a killed study resumes there when it is run again.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Device for sums: cpu, cuda, cuda:1. By default that of each site's file."),
    ] = None,
    anyway: Anyway = False,
    json_: Json = False,
) -> None:
    """Run a study with all its sites in this process. Spends budget, which each site's ledger records first."""
    from zerosum.report.build import PAGE
    from zerosum.report.record import read_plan, try_target
    from zerosum.study import resolve, result_bytes

    loaded = load_study(study, site)
    if device is not None:
        loaded = loaded.on(device)
    approved = None if plan is None else read_plan(plan)
    # The digest protects against a plan file that was replaced after its approval.
    if digest is not None and (approved is None or approved.proposal_digest != digest):
        raise BadParameter("the plan has another digest" if approved else "--digest belongs to a --plan")
    planned = approved or loaded.plan()
    # A study whose plan was approved was judged then.
    if approved is None and not anyway and (outlook := loaded.outlook(planned)) is not None:
        outlook.check()
    # Before anything is spent: a result that cannot be written would have been paid for.
    try_target(out, result_bytes(planned))
    with terminal.report_interrupt() as over:
        with terminal.study_progress() as observer, warnings.catch_warnings(record=True) as unexpected:
            # Python shows equal warnings once; two sites may have the same one.
            warnings.simplefilter("always", DataWarning)
            result = loaded.run(observer, planned, checkpoint, approved=approved is not None)
            # From here on Ctrl-C loses nothing: the result is archived, and the message names the command that writes
            # it.
            over.append(result.kept)
            observer(Progress("writing", 0, 1))
            with terminal.name_archive_on_failure(result.kept):
                maps = loaded.write(result, out)
            observer(Progress("writing", 1, 1))
        notes = [str(each.message) for each in unexpected if issubclass(each.category, DataWarning)]
        if json_:
            places = {"folder": str(out), "maps": [path.name for path in maps], "notes": notes}
            terminal.print_json(result.as_record() | places)
            return
        if describe := resolve(loaded.build_algorithm(), planned).describe:
            terminal.print_titled(result.report.algorithm, f": {describe}")
        terminal.show_result(result.estimate, result.as_record())
        terminal.show_warnings([*notes, *result.warnings])
        terminal.show_report(result.report)
        terminal.out.print(f"\nwritten to {out}{f', kept as {result.kept}' if result.kept else ''}")
        terminal.out.print(f"its report: {out / PAGE}", soft_wrap=True)


@app.command()
def version(json_: Json = False) -> None:
    """Print the versions of Zerosum and of the libraries it uses."""
    from zerosum.report.record import versions

    if json_:
        terminal.print_json(versions())
        return
    for name, number in versions().items():
        terminal.out.print(f"{name} {number}")
