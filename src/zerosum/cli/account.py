"""`zerosum account`: privacy cost of a noise level, and the noise for a privacy cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from zerosum.cli import complete, terminal
from zerosum.cli.app import Json, app
from zerosum.errors import BadParameter


@app.command()
def account(
    scheme: Annotated[
        str,
        typer.Option(
            help="pooled, local, cape-published, cape-helper, zero-sum, pairwise or secure-sum.",
            autocompletion=complete.noisy_schemes,
        ),
    ],
    sites: Annotated[int, typer.Option(help="Number of sites S.")],
    colluders: Annotated[int, typer.Option(help="Sites that may collude with the coordinator; 0 is allowed.")],
    sensitivity: Annotated[float, typer.Option(help="L2 sensitivity D of a site's sum.")],
    delta: Annotated[float, typer.Option(help="The delta of (epsilon, delta).")],
    dropouts: Annotated[int, typer.Option(help="Sites that may be lost in a round.")] = 0,
    tau: Annotated[
        float | None,
        typer.Option(
            help="The papers' tau (cape forms), a site's own noise (local, secure-sum), or the sum's (pooled)."
        ),
    ] = None,
    sigma_g: Annotated[
        float | None, typer.Option(help="zero-sum, pairwise: noise that only the site itself knows.")
    ] = None,
    sigma_e: Annotated[
        float | None,
        typer.Option(
            help="zero-sum, pairwise: noise that cancels (a pair's stream has variance sigma_e^2 / honest sites)."
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Find the noise with this exact epsilon; --sigma-g and --sigma-e keep their ratio, 100 if they "
            "are not given."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Cost of a scheme, exact and as published: mu, epsilon, noise, variance relative to the pooled sum."""
    from zerosum.kernel.calculator import account as calculate
    from zerosum.kernel.schemes import Scheme
    from zerosum.kernel.view import Coalition

    noise, ratio = tau, 100.0
    if Scheme(scheme).facts.ratio:
        if tau is not None:
            raise BadParameter(f"{scheme} takes --sigma-g and --sigma-e, not --tau")
        if (sigma_g is None) != (sigma_e is None):
            raise BadParameter("give both of --sigma-g and --sigma-e, or neither")
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
    terminal.show_table(table)


def _number(value: float | None) -> str:
    return "no formula" if value is None else f"{value:.6f}"
