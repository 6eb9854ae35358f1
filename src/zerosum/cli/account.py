"""`zerosum account`: privacy cost of a noise level, and the noise for a privacy cost.

The command is a calculator: it reads no study, no data and no ledger. It answers two questions about one scheme, for
which the papers and the exact analysis differ: which mu and epsilon has this noise against the worst coalition, and
which noise has this epsilon. The mathematics is in `zerosum.kernel.calculator`; this module translates options into the
scheme, the sites (`SiteShape`) and the coalition, and prints the answer.

`mu` is that of Gaussian differential privacy. Independent releases compose by adding their mu squared, and one mu
determines epsilon at every delta.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from zerosum.cli import complete, terminal
from zerosum.cli.app import Json, app
from zerosum.errors import BadParameter

if TYPE_CHECKING:
    from zerosum.kernel.calculator import Cost, LaplaceCost
    from zerosum.kernel.schemes import SiteShape

#: Accountants beside the exact one (`zerosum.kernel.published.composed`), by the words of the table.
_ACCOUNTANTS = {
    "exact": "exact",
    "rdp": "Renyi, conversion of 2020",
    "rdp_published": "Renyi, the papers' conversion, best order",
    "moments": "moments accountant, orders 1 to 64",
    "strong_composition": "strong composition",
    "basic_composition": "basic composition",
    "textbook": "basic composition, textbook Gaussian",  # its formula is proved for less than epsilon 1 a round
    "theorem_2": "Theorem 2 of capeDJICA",
}


@app.command()
def account(
    scheme: Annotated[
        str,
        typer.Option(
            help="pooled, local, cape-published, cape-helper, zero-sum, pairwise or secure-sum.",
            autocompletion=complete.noisy_schemes,
        ),
    ],
    colluders: Annotated[int, typer.Option(help="Sites that may collude with the coordinator; 0 is allowed.")],
    sensitivity: Annotated[
        float,
        typer.Option(
            help="L2 sensitivity D of a site's sum; 2 C for contributions clipped to norm C. L1 with --noise laplace."
        ),
    ],
    delta: Annotated[float, typer.Option(help="The delta of (epsilon, delta).")],
    sites: Annotated[
        int | None, typer.Option(help="Number of sites S; not needed with --units, --weights or --scales.")
    ] = None,
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
            help="Find the noise with this exact epsilon of all rounds; --sigma-g and --sigma-e keep their ratio, "
            "100 if they are not given."
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Number of releases with fresh noise; adds the published accountants to the table."),
    ] = None,
    rate: Annotated[
        float, typer.Option(help="Probability with which a unit takes part in a round (Poisson sampling).")
    ] = 1.0,
    units: Annotated[str | None, typer.Option(help="Units of each site, as 100,200,300.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="combine weighted: weight of each site's mean, as 0.2,0.3,0.5.")
    ] = None,
    scales: Annotated[str | None, typer.Option(help="Factor on mu of each site, in (0, 1], as 1,1,0.5.")] = None,
    combine: Annotated[
        str, typer.Option(help="cape forms: sums, or means or weighted means of unequal sites as in the papers.")
    ] = "sums",
    law: Annotated[
        str,
        typer.Option("--noise", help="gaussian, or laplace: Laplace noise in shares, with --tau its scale b."),
    ] = "gaussian",
    json_: Json = False,
) -> None:
    """Cost of a scheme, exact and as published: mu, epsilon, noise, variance relative to the pooled sum.

    Give the noise (--tau, or --sigma-g and --sigma-e), or --epsilon. With --rounds, the cost of that many releases
    together, with the accountants of the papers beside the exact one.

    Example: zerosum account --scheme secure-sum --sites 5 --colluders 1 --sensitivity 2 --delta 1e-5 --epsilon 1
    """
    from zerosum.kernel.calculator import account as calculate
    from zerosum.kernel.calculator import account_laplace
    from zerosum.kernel.schemes import Combine, Scheme
    from zerosum.kernel.view import Coalition

    if law not in ("gaussian", "laplace"):
        raise BadParameter(f"--noise must be gaussian or laplace, got {law!r}")
    # Laplace noise has its own accountant, which has no mu and covers neither sampling nor unequal sites.
    if law == "laplace":
        if any(each is not None for each in (sigma_g, sigma_e, units, weights, scales)) or rate != 1:
            raise BadParameter("--noise laplace takes --sites, --tau or --epsilon, and --rounds")
        if sites is None:
            raise BadParameter("give --sites")
        _show_laplace(
            account_laplace(
                Scheme(scheme),
                sites=sites,
                coalition=Coalition(colluders, dropouts),
                sensitivity=sensitivity,
                delta=delta,
                scale=tau,
                epsilon=epsilon,
                rounds=1 if rounds is None else rounds,
            ),
            json_=json_,
        )
        return
    if combine not in {each.value for each in Combine}:
        raise BadParameter(f"--combine must be sums, means or weighted, got {combine!r}")
    if weights is not None and combine != Combine.WEIGHTED.value:
        raise BadParameter(f"--weights needs --combine weighted, got --combine {combine}")
    noise, ratio = tau, 100.0
    # Schemes whose noise cancels in the sum have two standard deviations: sigma_g stays in the sum, sigma_e cancels.
    # The calculator scales sigma_g and holds their ratio; all other schemes have one noise level, tau.
    if Scheme(scheme).facts.ratio:
        if tau is not None:
            raise BadParameter(f"{scheme} takes --sigma-g and --sigma-e, not --tau")
        if (sigma_g is None) != (sigma_e is None):
            raise BadParameter("give both of --sigma-g and --sigma-e, or neither")
        if sigma_g is not None and sigma_e is not None:
            if not sigma_g > 0:
                raise BadParameter(f"sigma_g must be positive, got {sigma_g:g}")
            ratio = sigma_e / sigma_g
            # With --epsilon the two options give the ratio only, and the noise level is what is computed.
            noise = sigma_g if epsilon is None else None
    elif sigma_g is not None or sigma_e is not None:
        raise BadParameter(f"{scheme} takes --tau, not --sigma-g and --sigma-e")
    cost = calculate(
        Scheme(scheme, ratio=ratio, combine=Combine(combine)),
        sites=_shapes(sites, units, weights, scales),
        coalition=Coalition(colluders, dropouts),
        sensitivity=sensitivity,
        delta=delta,
        tau=noise,
        epsilon=epsilon,
        rounds=1 if rounds is None else rounds,
        rate=rate,
        compare=rounds is not None,
    )
    if json_:
        terminal.print_json(asdict(cost))
        return
    _show_cost(cost)
    # Equal sites have equal costs: one line for each site would repeat the first table.
    if len({(each.round_mu, each.sigma_g) for each in cost.by_site}) > 1:
        _show_sites(cost)
    if cost.accountants is not None:
        _show_accountants(cost)


def _shapes(sites: int | None, units: str | None, weights: str | None, scales: str | None) -> list[SiteShape]:
    """The public facts of every site, from the options.

    Parameters
    ----------
    sites : int or None
        Number of sites, all alike.
    units, weights, scales : str or None
        One number for each site, with commas between them.

    Returns
    -------
    list of SiteShape
        One entry for each site; without a list, entries without a number of units.

    Raises
    ------
    BadParameter
        If no option gives the number of sites, or two options give different numbers.
    """
    from zerosum.kernel.schemes import SiteShape

    lists = {"--units": _numbers("--units", units), "--weights": _numbers("--weights", weights)}
    lists["--scales"] = _numbers("--scales", scales)
    # Each option that is given counts the sites. They must agree, and --sites may be left out.
    counts = {name: len(each) for name, each in lists.items() if each}
    if sites is not None:
        counts["--sites"] = sites
    if not counts:
        raise BadParameter("give --sites, or one number for each site in --units")
    if len(set(counts.values())) > 1:
        raise BadParameter(f"different numbers of sites: {', '.join(f'{name} {n}' for name, n in counts.items())}")
    S = next(iter(counts.values()))
    if S < 2:
        raise BadParameter(f"a joint study needs at least two sites, got {S}")
    # The lists are parsed as floating-point numbers; a fraction of a unit would be cut off silently below.
    if not all(each.is_integer() for each in lists["--units"]):
        raise BadParameter(f"--units must be whole numbers, got {units}")
    return [
        SiteShape(
            int(lists["--units"][s]) if units else None,
            lists["--scales"][s] if scales else 1.0,
            lists["--weights"][s] if weights else None,
        )
        for s in range(S)
    ]


def _numbers(option: str, text: str | None) -> list[float]:
    """The numbers of an option that holds one for each site; empty if it is not given.

    Parameters
    ----------
    option : str
        Name of the option, for the message.
    text : str or None
        Value of the option.
    """
    try:
        return [float(each) for each in text.split(",")] if text else []
    except ValueError:
        raise BadParameter(f"{option} must be numbers with commas between them, got {text!r}") from None


def _show_cost(cost: Cost) -> None:
    """Print the cost of all rounds, the exact one beside the papers' claim.

    The variance of a pooled release of equal mu is the yardstick for schemes: a trusted party that held all records
    would need that variance, so the ratio is the price of not having one.
    """
    sampled = "" if cost.rate == 1 else f", rate {cost.rate:g}"
    together = "" if cost.rounds == 1 else f", {cost.rounds} rounds{sampled}"
    lost = f", {cost.dropouts} lost" if cost.dropouts else ""
    title = f"{cost.scheme}, {cost.sites} sites, {cost.colluders} colluding{lost}{together}"
    table = Table("", "exact", "published", title=title)
    theirs = cost.published_mu_squared
    # Under sub-sampling a round protects the presence of a unit (it is drawn or not); the mu of all rounds below is
    # that of one Gaussian release with the same epsilon.
    if cost.rate < 1:
        table.add_row("mu of one round, for presence", _digits(cost.round_mu), "")
    elif cost.rounds > 1:
        table.add_row("mu of one round", _digits(cost.round_mu), "")
    table.add_row("mu^2", _digits(cost.mu_squared), _number(theirs))
    table.add_row("mu", _digits(cost.mu), _number(None if theirs is None else theirs**0.5))
    table.add_row(f"epsilon at delta {cost.delta:g}", _digits(cost.epsilon), _number(cost.published_epsilon))
    for name, value in cost.noise.items():
        table.add_row(name, f"{value:.6g}", "")
    table.add_row("noise of the released sum", f"{cost.noise_std:.6g}", "")
    table.add_row("its variance / pooled at equal mu", f"{cost.variance_ratio:.6f}", "")
    if (each := cost.solutions) is not None:
        printed = "no solution" if each.printed is None else f"{each.printed:.6f}"
        table.add_row("  by the papers' printed solution", printed, "")
        table.add_row("  by the general solution", f"{each.solved:.6f}", "")
        table.add_row("  by combine sums", f"{each.sums:.6f}", "")
    terminal.show_table(table)


def _show_laplace(cost: LaplaceCost, *, json_: bool) -> None:
    """Print the cost of releases with Laplace noise."""
    if json_:
        terminal.print_json(asdict(cost))
        return
    lost = f", {cost.dropouts} lost" if cost.dropouts else ""
    together = "" if cost.rounds == 1 else f", {cost.rounds} rounds"
    table = Table(
        "", "exact", title=f"{cost.scheme}, {cost.sites} sites, {cost.colluders} colluding{lost}{together}, Laplace"
    )
    table.add_row("epsilon of one release at delta 0", _digits(cost.round_epsilon))
    table.add_row(f"epsilon at delta {cost.delta:g}", _digits(cost.epsilon))
    table.add_row("scale b of the honest sites' noise", f"{cost.scale:.6g}")
    table.add_row("noise of the released sum", f"{cost.noise_std:.6g}")
    table.add_row("its variance / pooled at equal epsilon", f"{cost.variance_ratio:.6f}")
    table.add_row("95 % interval, in standard deviations", f"{cost.interval:.4f}")
    terminal.show_table(table)


def _show_sites(cost: Cost) -> None:
    """Print one line for each site. The first table has only the largest cost, and unequal sites pay unequally."""
    table = Table("site", "units", "mu of one round", "epsilon", "sigma_g", "sigma_e")
    for number, each in enumerate(cost.by_site, start=1):
        units = "" if each.units is None else f"{each.units}"
        mu, epsilon = _digits(each.round_mu), _digits(each.epsilon)
        table.add_row(f"{number}", units, mu, epsilon, f"{each.sigma_g:.6g}", f"{each.sigma_e:.6g}")
    terminal.show_table(table)


def _show_accountants(cost: Cost) -> None:
    """The epsilon of all rounds by every accountant, for the exact mu and for the papers' mu of a round."""
    rows = cost.accountants or {}
    # The second column is left out for schemes and combinations without a published theorem.
    papers = any(each["papers"] is not None for each in rows.values())
    every = "" if cost.rate == 1 else " without sampling"
    headings = (f"epsilon of all rounds{every} by", "exact mu", *(("the papers' mu",) if papers else ()))
    table = Table(*headings)
    for name, each in rows.items():
        cells = [each["exact"], *([each["papers"]] if papers else [])]
        table.add_row(_ACCOUNTANTS[name], *("" if value is None else f"{value:.6g}" for value in cells))
    terminal.show_table(table)
    if cost.rate < 1:
        terminal.out.print(
            "These accountants do not use the sampling: they are for rounds in which every unit takes part.",
            soft_wrap=True,
        )
    # sqrt(2 ln(1.25/delta)) D/epsilon is proved for epsilon below 1 (Dwork and Roth 2014, theorem A.1). All rounds
    # have equal noise: their sum reaches the number of rounds where one round reaches 1.
    textbook = [value for value in rows["textbook"].values() if value is not None]
    if max(textbook) >= cost.rounds:
        terminal.out.print(
            "The textbook formula is proved for less than epsilon 1 a round: its value here is no guarantee.",
            soft_wrap=True,
        )


def _number(value: float | None) -> str:
    """A published figure, or the remark that the papers have no formula for this case."""
    return "no formula" if value is None else _digits(value)


def _digits(value: float) -> str:
    """Six decimals, or six significant digits of a number that has none of its digits among them."""
    return f"{value:.6f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.6g}"
