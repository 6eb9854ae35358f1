"""The command line. Results go to stdout, progress to stderr; `--json` makes both the result and errors JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from zerosum import terminal
from zerosum.errors import BadInput, BadParameter, CheckFailed, LedgerRefused, ZerosumError
from zerosum.report import check_target, finite, privacy_report, versions

app = typer.Typer(
    help="One joint result from institutions that may not share records, under exactly accounted privacy.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
ledger_app = typer.Typer(help="A site's ledger: what was spent, and whether the record is sound.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
bench_app = typer.Typer(help="Speed, as ratios measured side by side on this machine.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
# typer's own base of all usage errors, wherever the installed version keeps it
_UsageProblem: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main() -> None:
    """Entry point: every foreseeable failure is one sentence and an exit code, never a traceback."""
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    try:
        code = app(args=arguments, prog_name="zerosum", standalone_mode=False)
        return int(code or 0)
    except ZerosumError as error:
        return _fail(as_json, type(error).__name__, str(error), error.exit_code, error.detail)
    except _UsageProblem as error:
        message = error.format_message()
        if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help page
            print(message)
            return 2
        return _fail(as_json, "UsageError", " ".join(message.split()), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _fail(as_json, "Interrupted", "interrupted; what was spent stays spent", 130)
    except BrokenPipeError:
        return 0


def _fail(as_json: bool, kind: str, message: str, code: int, detail: str = "") -> int:
    if as_json:
        print(json.dumps({"error": {"type": kind, "message": message}}))
    else:
        terminal.show_error(message, detail)
    return code


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the pictures and the figures go.")] = Path("zerosum-demo"),
    repeats: Annotated[int, typer.Option(min=2, help="How often each scheme is asked.")] = 80,
    people: Annotated[int, typer.Option(min=20, help="How many people have their brain scanned at each site.")] = 256,
    json_: Json = False,
) -> None:
    """Four made-up hospitals: one question under every scheme at the same epsilon, then maps of made-up brains."""
    from zerosum import demo as module
    from zerosum import demo_maps

    with terminal.progress("asking every scheme") as on_step:
        found = module.play(repeats, on_step)
    with terminal.progress("separating brains") as on_step:
        maps = demo_maps.play(people, on_step)
    picture, maps_picture = out / "accuracy.png", out / "maps.png"
    module.draw(found, picture)
    demo_maps.draw(maps, maps_picture)
    record = found.as_record() | {"maps": maps.as_record()}
    (out / "demo.json").write_text(json.dumps(finite(record), indent=2) + "\n")
    if json_:
        terminal.print_json(record | {"picture": str(picture), "maps_picture": str(maps_picture)})
        return
    hospitals = ", ".join(f"{name} ({size})" for name, size in found.sizes.items())
    terminal.titled("Four hospitals", f": {hospitals}. The question: the mean of five clinical measurements.\n")
    pooled = next(line.predicted for line in found.lines if line.scheme == "pooled")
    table = Table("scheme", "trusted", "error %", "predicted", "var/pooled", "epsilon")
    for line in found.lines:
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
    terminal.out.print(table)
    terminal.show_report(found.report)
    terminal.titled("\nBrain maps", f" ({maps.says}).\n")
    table = Table("maps", "epsilon", "with reduction", "correlation", "gain index")
    for each in maps.lines:
        costs = ["none" if value is None else f"{value:.4g}" for value in (each.epsilon, each.with_reduction)]
        table.add_row(each.heading, *costs, f"{each.correlation:.3f}", f"{each.gain_index:.3f}")
    terminal.out.print(table)
    terminal.out.print(f"\npictures: {picture}, {maps_picture}")


@app.command()
def account(
    scheme: Annotated[
        str,
        typer.Option(help="pooled, local, cape-published, cape-helper, zero-sum, pairwise or secure-sum."),
    ],
    sites: Annotated[int, typer.Option(help="Number of sites S.")],
    colluders: Annotated[int, typer.Option(help="Sites that may collude with the coordinator.")],
    sensitivity: Annotated[float, typer.Option(help="L2 sensitivity D of a site's sum.")],
    delta: Annotated[float, typer.Option(help="The delta of (epsilon, delta).")],
    dropouts: Annotated[int, typer.Option(help="Sites that may be lost in a round.")] = 0,
    tau: Annotated[
        float | None,
        typer.Option(
            help="The papers' tau (cape forms), a site's own noise (local, secure-sum), or the sum's (pooled)."
        ),
    ] = None,
    sigma_g: Annotated[float | None, typer.Option(help="zero-sum, pairwise: noise a site keeps to itself.")] = None,
    sigma_e: Annotated[
        float | None,
        typer.Option(
            help="zero-sum, pairwise: noise that cancels (a pair's stream has variance sigma_e^2 / honest sites)."
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Solve for the noise at which the exact loss is this.")] = None,
    json_: Json = False,
) -> None:
    """What a scheme costs, exactly and as published: mu, epsilon, noise, variance against the pooled sum's."""
    from zerosum.kernel.calculator import account as calculate
    from zerosum.kernel.schemes import Scheme
    from zerosum.kernel.view import Coalition

    noise, ratio = tau, 100.0
    if scheme in ("zero-sum", "pairwise"):
        if tau is not None:
            raise BadParameter(f"{scheme} takes --sigma-g and --sigma-e, not --tau")
        if (sigma_g is None) != (sigma_e is None):
            raise BadParameter("--sigma-g and --sigma-e belong together")
        if sigma_g is not None and sigma_e is not None:
            if not sigma_g > 0:
                raise BadParameter(f"sigma_g must be positive, got {sigma_g:g}")
            ratio = sigma_e / sigma_g
            noise = sigma_g if epsilon is None else None
    elif sigma_g is not None or sigma_e is not None:
        raise BadParameter(f"{scheme} takes --tau, not --sigma-g and --sigma-e")
    cost = calculate(
        Scheme(scheme, ratio=ratio),
        sites=sites,
        coalition=Coalition(colluders, dropouts),
        sensitivity=sensitivity,
        delta=delta,
        tau=noise,
        epsilon=epsilon,
    )
    if json_:
        terminal.print_json(asdict(cost))
        return
    table = Table("", "exact", "published", title=f"{cost.scheme}, {cost.sites} sites, {cost.colluders} colluding")
    table.add_row("mu^2", f"{cost.mu_squared:.6f}", _number(cost.published_mu_squared))
    table.add_row(
        "mu",
        f"{cost.mu:.6f}",
        _number(None if cost.published_mu_squared is None else cost.published_mu_squared**0.5),
    )
    table.add_row(f"epsilon at delta {cost.delta:g}", f"{cost.epsilon:.6f}", _number(cost.published_epsilon))
    for name, value in cost.noise.items():
        table.add_row(name, f"{value:.6g}", "")
    table.add_row("noise of the released sum", f"{cost.noise_std:.6g}", "")
    table.add_row("its variance / pooled at equal mu", f"{cost.variance_ratio:.6f}", "")
    terminal.out.print(table)


def _number(value: float | None) -> str:
    return "no formula" if value is None else f"{value:.6f}"


@app.command()
def plan(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).")],
    json_: Json = False,
) -> None:
    """What a study will release and what that costs each site, before any data is read."""
    from zerosum.study import Study, settle

    loaded = Study.load(study)
    planned = loaded.plan()
    report, says = privacy_report(planned), settle(loaded.build_algorithm(), planned).says
    if json_:
        terminal.print_json(report.as_record() | {"says": says})
        return
    if says:
        terminal.titled(report.algorithm, f": {says}")
    terminal.show_report(report)


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="The study file (TOML).")],
    out: Annotated[Path, typer.Option(help="A new folder for the result and the privacy report.")],
    json_: Json = False,
) -> None:
    """Run a study with all its sites in this process. It spends budget: each site's ledger records it first."""
    from zerosum.study import Study

    loaded = Study.load(study)
    check_target(out)
    with terminal.progress("rounds" if loaded.imaging is None else "runs of images, then rounds") as on_step:
        result = loaded.run(on_round=on_step, on_scan=on_step)
    result.write(out)
    maps = loaded.write_maps(result, out)
    if json_:
        terminal.print_json(result.as_record() | {"folder": str(out), "maps": [path.name for path in maps]})
        return
    for name, value in result.estimate.items():
        terminal.titled(name, f": {terminal.short(value.tolist())}")
    terminal.show_report(result.report)
    terminal.out.print(f"\nwritten to {out}")


@app.command()
def audit(
    scheme: Annotated[str, typer.Option(help="A scheme, or all.")] = "all",
    study: Annotated[Path | None, typer.Option(help="Take the program from this study file instead of a mean.")] = None,
    sites: Annotated[int, typer.Option(help="Number of sites S.")] = 4,
    colluders: Annotated[int, typer.Option(help="Sites that collude with the coordinator.")] = 1,
    dropouts: Annotated[int, typer.Option(help="Sites that are lost in every round.")] = 0,
    mu: Annotated[float, typer.Option(min=1.0, help="What the study is planned to cost; at least 1.")] = 1.5,
    samples: Annotated[int, typer.Option(min=1000, help="How many numbers of noise to look at.")] = 100_000,
    mistake: Annotated[
        str | None, typer.Option(help="Seed a mistake that the audit must find, such as spectral or repeated-draws.")
    ] = None,
    json_: Json = False,
) -> None:
    """Play the adversary on real transcripts: does anyone reach more than is claimed? Exit code 4 if so."""
    from zerosum import audit as module
    from zerosum.kernel.schemes import SCHEMES, Scheme
    from zerosum.mistakes import FAULTS, MISTAKES, mistaken, seeded
    from zerosum.study import Study

    if mistake is not None and mistake not in MISTAKES:
        raise BadParameter(f"unknown mistake {mistake!r}; there are {', '.join(MISTAKES)}")
    program = Study.load(study).build_algorithm() if study is not None else None
    if mistake in ("spectral", "triangles"):
        program = mistaken(mistake)
    names = [name for name in SCHEMES if name != "non-private"] if scheme == "all" else [scheme]
    if mistake == "colluder" and scheme == "all":
        names = [
            name for name in names if name not in ("pooled", "local")
        ]  # where no draw is shared, none is forgotten
    # the coordinator is the helper of cape-helper; what is planned holds if somebody else were
    attacks = [(name, apart) for name in names for apart in ((False, True) if name == "cape-helper" else (False,))]
    found = []
    with terminal.progress("attacking") as on_step, seeded(mistake) if mistake in FAULTS else nullcontext():
        for number, (name, apart) in enumerate(attacks):
            found.append(
                module.audit(
                    Scheme(name),
                    program,
                    sites=sites,
                    colluders=colluders,
                    dropouts=dropouts if name not in ("pairwise", "cape-helper") else 0,
                    mu=mu,
                    samples=samples,
                    forget_colluders=mistake == "colluder",
                    helper_apart=apart,
                    on_step=lambda done, planned, n=number: on_step(n * planned + done, len(attacks) * planned),  # type: ignore[misc]
                )
            )
    records = [asdict(finding) | {"holds": finding.holds, "tight": finding.tight} for finding in found]
    failed = [finding for finding in found if not finding.holds]
    if json_ and not failed:
        terminal.print_json({"audits": records})
    elif not json_:
        table = Table("scheme", "program", "claimed mu", "reached mu", "interval", "verdict")
        for finding in found:
            cells = f"{finding.claimed:.4f}", "no noise left", ""
            if finding.reached < math.inf:
                cells = f"{finding.claimed:.4f}", f"{finding.reached:.4f}", f"{finding.low:.4f} to {finding.high:.4f}"
            verdict = Text(finding.verdict, style="" if finding.holds else "bold red")
            table.add_row(finding.name, finding.algorithm, *cells, verdict)
        terminal.out.print(table)
        for finding in found:
            for fault in finding.faults:
                terminal.out.print(f"{finding.name}: {fault}")
            if finding.claimed > finding.planned:
                terminal.out.print(
                    f"Under {finding.scheme} the coordinator deals the noise that cancels and knows it: against it"
                    f" mu {finding.claimed:.4f} is left where {finding.planned:.4f} was planned."
                )
    if failed:
        worst = max(failed, key=lambda finding: finding.reached / finding.claimed)
        where = ", ".join(finding.name for finding in failed)
        wrong = f"; {worst.faults[0]}" if worst.faults else ""
        left = "no noise is left, mu inf" if worst.reached == math.inf else f"mu {worst.reached:.4f}"
        raise CheckFailed(
            f"an attacker exceeds the claim{' or the noise is wrong' if wrong else ''} under {where}: {left} is reached"
            f" where {worst.claimed:.4f} was claimed{wrong}"
        )


_DOUBTED = (
    "Some entries were charged by Zerosum 0.1 under a guarantee that did not hold, or may not have held: they count as "
    "they were charged, and may have cost more; the changelog says which releases and why."
)


@ledger_app.command("show")
def ledger_show(
    path: Annotated[Path | None, typer.Argument(help="A ledger file; without one, list those of this user.")] = None,
    delta: Annotated[float, typer.Option(help="The delta at which the total epsilon is stated.")] = 1e-5,
    json_: Json = False,
) -> None:
    """What a population has spent so far."""
    from zerosum.site.ledger import Ledger

    paths = [path] if path is not None else _ledgers()
    records = []
    for file in paths:
        with Ledger.inspect(file) as ledger:
            doubts = ledger.doubts()
            records.append(
                {
                    "ledger": str(file),
                    "account": asdict(ledger.account),
                    "epsilon": ledger.epsilon(delta),
                    "delta": delta,
                    "mu": ledger.mu,
                    "warning": _DOUBTED if any(doubts) else None,
                    "entries": [
                        asdict(entry) | {"guarantee": doubt}
                        for entry, doubt in zip(ledger.entries(), doubts, strict=True)
                    ],
                }
            )
    if json_:
        terminal.print_json(records if path is None else records[0])
        return
    if not records:
        terminal.out.print("no ledgers yet")
    for record in records:
        terminal.show_ledger(record)


@ledger_app.command("verify")
def ledger_verify(
    path: Annotated[Path | None, typer.Argument(help="A ledger file; without one, all of this user's.")] = None,
    json_: Json = False,
) -> None:
    """Check a ledger's hash chain and its counter."""
    from zerosum.site.ledger import Ledger

    checked = []
    for file in [path] if path is not None else _ledgers():
        if not file.exists():
            raise BadInput(f"there is no ledger {file}")
        with _checking(), Ledger.inspect(file) as ledger:
            checked.append({"ledger": str(file), "entries": ledger.verify(), "sound": True})
    if json_:
        terminal.print_json(checked if path is None else checked[0])
        return
    for line in checked:
        terminal.out.print(f"{line['ledger']}: sound, {line['entries']} entries")


@contextmanager
def _checking() -> Iterator[None]:
    """Here a fault is what was looked for, not what was run into."""
    try:
        yield
    except LedgerRefused as error:
        raise CheckFailed(str(error)) from error


def _ledgers() -> list[Path]:
    from zerosum.site.policy import ledger_folder

    return sorted(ledger_folder().glob("*.sqlite"))


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="pca-epsilon, pca-samples, pca-delta, ica-epsilon, ica-subjects, ica-delta, ica-maps or accountants."
        ),
    ],
    data: Annotated[
        str | None, typer.Option(help="Where there is a choice: synthetic (if not given), mnist or covertype.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Where mnist.npz and covtype_60k.npz lie.")] = None,
    out: Annotated[Path, typer.Option(help="Where the numbers (CSV) and the picture (PNG) go.")] = Path("reproduced"),
    full: Annotated[
        bool, typer.Option("--full", help="The papers' sizes and ten runs, instead of a quick look.")
    ] = False,
    json_: Json = False,
) -> None:
    """One of the papers' figures: their methods and ours, what they claim to cost and what they cost."""
    from zerosum.reproduce import find

    experiment = find(name)
    with terminal.progress(name) as on_step:
        rows = experiment.run(out, data, folder, full=full, on_step=on_step)
    lines = experiment.summary(rows)
    if json_:
        terminal.print_json({"figure": name, "data": experiment.dataset(data), "folder": str(out), "rows": lines})
        return
    table = Table(*experiment.shown)
    for line in lines:
        cells = [line[column] for column in experiment.shown.values()]
        table.add_row(*[cell if isinstance(cell, str) else f"{cell:.4g}" for cell in cells])
    terminal.out.print(table)
    terminal.out.print(f"written to {out}")


@bench_app.command("secagg")
def bench_secagg(
    large: Annotated[bool, typer.Option("--large", help="Add 1000 sites with 10 000 numbers: minutes.")] = False,
    json_: Json = False,
) -> None:
    """Masks against the bare cipher, the coordinator's memory, cost against sites and numbers."""
    from zerosum import bench

    with terminal.progress("measuring") as on_step:
        figures = bench.bench_secagg(large=large, on_step=on_step)
    terminal.show_figures(figures.as_record(), figures.rows(), json_)


@bench_app.command("sampler")
def bench_sampler(json_: Json = False) -> None:
    """The exact discrete Gaussian against NumPy's normals and, where it is installed, OpenDP's discrete Gaussian."""
    from zerosum import bench

    with terminal.progress("measuring") as on_step:
        figures = bench.bench_sampler(on_step=on_step)
    terminal.show_figures(figures.as_record(), figures.rows(), json_)


@app.command()
def version(json_: Json = False) -> None:
    """Versions of Zerosum and of what it stands on."""
    if json_:
        terminal.print_json(versions())
        return
    for name, number in versions().items():
        terminal.out.print(f"{name} {number}")
