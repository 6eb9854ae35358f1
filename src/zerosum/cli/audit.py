"""`zerosum audit`: attacks on recorded transcripts.

The audit runs studies on synthetic data, gives an adversary all that the coordinator and the colluding sites see, and
compares the mu that the adversary reaches with the mu that the sites are charged (`zerosum.audit`). It reads no private
data and charges no ledger. The exit code is 4 if a claim is exceeded, so that the command can stand in a pipeline of
tests.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from zerosum.cli import complete, terminal
from zerosum.cli.app import Json, app
from zerosum.errors import BadParameter, CheckFailed

if TYPE_CHECKING:
    from zerosum.kernel.terms import Noise


@app.command()
def audit(
    scheme: Annotated[
        str, typer.Option(help="A scheme, or all that add noise.", autocompletion=complete.schemes)
    ] = "all",
    study: Annotated[
        Path | None,
        typer.Option(
            help="Take the algorithm from this study file instead of a mean of 8000 columns.",
            autocompletion=complete.studies,
        ),
    ] = None,
    sites: Annotated[int, typer.Option(help="Number of sites S.")] = 4,
    colluders: Annotated[int, typer.Option(help="Sites that collude with the coordinator.")] = 1,
    dropouts: Annotated[
        int, typer.Option(help="Sites that are lost in every round, under schemes that can lose one.")
    ] = 0,
    mu: Annotated[float, typer.Option(min=1.0, help="Planned cost of the study; at least 1.")] = 1.5,
    samples: Annotated[
        int, typer.Option(min=1000, help="Number of noise values to examine; half are measured.")
    ] = 100_000,
    fan_out: Annotated[
        int | None,
        typer.Option(help="Along a balanced tree, with what every inner node reads; for --scheme secure-sum."),
    ] = None,
    noise: Annotated[
        str,
        typer.Option(help="gaussian, or laplace for means and histograms; --mu is then the pure epsilon of the study."),
    ] = "gaussian",
    mistake: Annotated[
        str | None,
        typer.Option(
            help="Run a program with a wrong sensitivity, which the audit must detect: spectral or triangles.",
            autocompletion=complete.mistakes,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Attack real transcripts and compare the mu reached with the mu claimed. Exit code 4 if it is larger."""
    from zerosum import audit as module
    from zerosum.audit.demonstrations import demonstration
    from zerosum.kernel.laplace import LAPLACE_SCHEMES
    from zerosum.kernel.schemes import SCHEMES, Scheme
    from zerosum.study import Study

    law = _law(noise)
    program = Study.load(study).build_algorithm() if study is not None else None
    if mistake is not None:
        program = demonstration(mistake)
    able = LAPLACE_SCHEMES if law == "laplace" else tuple(SCHEMES)
    names = [name for name in able if SCHEMES[name].noisy] if scheme == "all" else [scheme]
    # Under cape-helper the coordinator deals the noise, and the planned mu holds for a separate dealer only: test both.
    attacks = [
        (name, apart) for name in names for apart in ((False, True) if Scheme(name).facts.deals_noise else (False,))
    ]
    # One finding for each attack. Progress is counted over all attacks, which take about equally long.
    reports = []
    with terminal.progress("attacking") as on_step:
        for number, (name, apart) in enumerate(attacks):
            reports.append(
                module.audit(
                    Scheme(name),
                    program,
                    sites=sites,
                    colluders=colluders,
                    # A scheme in which the noise of all sites must cancel cannot lose a site; it is attacked without
                    # losses.
                    dropouts=dropouts if Scheme(name).facts.tolerates_losses else 0,
                    mu=mu,
                    samples=samples,
                    helper_apart=apart,
                    fan_out=fan_out,
                    noise=law,
                    # `n=number` binds the value of this turn: a closure would read the loop variable when it is called.
                    on_step=lambda done, planned, n=number: on_step(n * planned + done, len(attacks) * planned),  # type: ignore[misc]
                )
            )
    records = [asdict(finding) | {"holds": finding.holds, "tight": finding.tight} for finding in reports]
    failed = [finding for finding in reports if not finding.holds]
    # A failed audit is an error, and `_fail` prints it as JSON: stdout has one JSON value in both cases.
    if json_ and not failed:
        terminal.print_json({"audits": records})
    elif not json_:
        cost = "epsilon" if law == "laplace" else "mu"
        table = Table("scheme", "program", f"claimed {cost}", f"reached {cost}", "interval", "verdict")
        for finding in reports:
            # An infinite mu means that the attacker computes the difference without any noise; there is no interval
            # around it.
            cells = f"{finding.claimed:.4f}", "no noise left", ""
            if finding.reached < math.inf:
                cells = f"{finding.claimed:.4f}", f"{finding.reached:.4f}", f"{finding.low:.4f} to {finding.high:.4f}"
            verdict = Text(finding.verdict, style="" if finding.holds else "bold red")
            table.add_row(finding.name, finding.algorithm, *cells, verdict)
        terminal.show_table(table)
        for finding in reports:
            for fault in finding.faults:
                terminal.out.print(f"{finding.name}: {fault}")
            # Only under cape-helper: against a coordinator that is also the helper the sum protects less than planned.
            if finding.claimed > finding.planned:
                terminal.out.print(
                    f"Under {finding.scheme} the coordinator deals the noise that cancels and knows it: against the"
                    f" coordinator, mu is {finding.claimed:.4f} instead of the planned {finding.planned:.4f}."
                )
    if failed:
        # One sentence can name one attack: the one that exceeds its claim by the largest factor.
        worst = max(failed, key=lambda finding: finding.reached / finding.claimed)
        where = ", ".join(finding.name for finding in failed)
        wrong = f"; {worst.faults[0]}" if worst.faults else ""
        cost = "epsilon" if law == "laplace" else "mu"
        left = f"no noise is left, {cost} inf" if worst.reached == math.inf else f"{cost} {worst.reached:.4f}"
        raise CheckFailed(
            f"an attacker exceeds the claim{' or the noise is wrong' if wrong else ''} under {where}: {left} is reached"
            f" where {worst.claimed:.4f} was claimed{wrong}"
        )


def _law(noise: str) -> Noise:
    """The noise law of the option --noise."""
    if noise == "laplace":
        return "laplace"
    if noise == "gaussian":
        return "gaussian"
    raise BadParameter(f"--noise must be gaussian or laplace, got {noise!r}")
