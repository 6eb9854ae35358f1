"""`zerosum dossier`: what a data protection officer, an ethics board and a registry ask for, filled from a study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zerosum.cli import terminal
from zerosum.cli.app import Json, app
from zerosum.errors import BadInput

if TYPE_CHECKING:
    from zerosum.report.dossier_facts import Facts, SiteFacts
    from zerosum.site.policy import Policy
    from zerosum.study import SiteFile


@app.command()
def dossier(
    source: Annotated[Path, typer.Argument(help="A plan (.json), a study file (.toml), or the folder of a result.")],
    out: Annotated[Path, typer.Option(help="A new folder for the dossier.")] = Path("dossier"),
    site: Annotated[
        Path | None,
        typer.Option(help="A site's file: its policy and its ledger are filled in, and its key signs."),
    ] = None,
    docx: Annotated[bool, typer.Option("--docx", help="Write a Word file as well (needs python-docx).")] = False,
    json_: Json = False,
) -> None:
    """Write the signed dossier of a study: summary, questions with answers, impact assessment, registry entry."""
    from zerosum.report.dossier import write_dossier
    from zerosum.report.signature import coordinator_key
    from zerosum.study import SiteFile

    file = None if site is None else SiteFile.load(site)
    facts = _facts(source, file)
    if file is not None and file.name not in [each.name for each in facts.plan.sites]:
        raise BadInput(f"the plan has no site {file.name!r}: give the file of one of its sites")
    key = coordinator_key() if file is None else file.keep_identity()
    written = write_dossier(facts, out, key, site="" if file is None else file.name, docx=docx)
    names = [each.name for each in facts.sites]
    if json_:
        recipients = {each.name: each.best_guess for each in facts.recipients.values()}
        record = {"dossier": str(out), "files": [str(path) for path in written], "plan": facts.plan.digest()}
        terminal.print_json(record | {"best_guess": recipients, "sites": names, "draft": facts.draft})
        return
    for path in written:
        terminal.out.print(str(path), soft_wrap=True, markup=False)
    if names:
        terminal.out.print(f"it mentions other studies of {', '.join(names)}: give it to their own officers only")
    if facts.draft:
        terminal.out.print(
            "the plan was made for this dossier: write one with `zerosum plan --out` to have it approved"
        )


def _facts(source: Path, site: SiteFile | None) -> Facts:
    """What a dossier of this source is filled from.

    Parameters
    ----------
    source : Path
        A plan, a study file or the folder of a result.
    site : SiteFile, optional
        A site whose policy and ledger are read as well.
    """
    from zerosum.report.dossier_facts import Facts
    from zerosum.report.record import Result, read_plan
    from zerosum.study import Study

    own = () if site is None else (_of_site(site, site.own_policy()),)
    if source.is_dir():
        result = Result.read(source)
        return Facts(result.plan, result, own)
    if source.suffix == ".json":
        return Facts(read_plan(source), None, own)
    if source.suffix != ".toml":
        raise BadInput(f"a plan (.json), a study file (.toml) or the folder of a result is needed, got {source}")
    study = Study.load(source)
    # A file for rehearsals has the policies of its sites, too.
    embedded = tuple(
        _of_site(each, each.load_policy(study.unit.kind, study.unit.adjacency)) for each in study.site_files
    )
    return Facts(study.plan(), None, own or embedded, draft=True)


def _of_site(file: SiteFile, policy: Policy) -> SiteFacts:
    """Policy and ledger of a site. A ledger that does not exist yet is None."""
    from zerosum.report.dossier_facts import SiteFacts
    from zerosum.site.ledger import Ledger
    from zerosum.site.ledger_summary import statement

    if not policy.ledger_path.exists():
        return SiteFacts(file.name, policy, None)
    with Ledger.inspect(policy.ledger_path, counter=policy.counter) as ledger:
        return SiteFacts(file.name, policy, statement(ledger, policy.cap))
