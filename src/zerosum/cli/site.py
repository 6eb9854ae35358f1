"""`zerosum site`: set up, run and query a site.

A site is one process beside its data. Its folder holds everything that outlives the process: the site file, the
identity, the schema, and in `state` the decisions, the ledger, the audit log and metrics. The commands beside `run`
read and write these files and need no connection to the process, so that a steward can decide while the site serves,
and query it while it is down.

The order of a new site: `init` (identity and file), `fetch` (with a database), `schema` (draft, read, `--confirm`),
`run`; then `approve` or `refuse` for each plan, unless consent is automatic.

Output of `schema` and `dry-run` may describe private data. It is for the steward only; what a site sends to a
coordinator depends on public values and releases.
"""

from __future__ import annotations

import json
import signal
import sys
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zerosum.cli import terminal
from zerosum.cli.app import DeskOption, Json, SiteOption, site_app
from zerosum.cli.log import LogJson, log_event, start_logging
from zerosum.errors import BadInput, BadStudy, CheckFailed, ZerosumError
from zerosum.kernel.names import check_name, counted, visible
from zerosum.protocol.progress import Progress

if TYPE_CHECKING:
    from zerosum.kernel.plan import Plan
    from zerosum.site.audit_log import AuditLog
    from zerosum.site.decisions import Consents, Decision
    from zerosum.site.policy import Policy
    from zerosum.study import SiteFile

_STALE = 60.0  # s, the least age of metrics that is a fault; a busy machine may delay a write. Chosen by hand

# The file that `site init` writes: entries that every site must decide about are active, the others are comments. The
# name is inserted with its quotes, escaped by json.dumps.
_TEMPLATE = """\
# A site of Zerosum. Paths start from the folder of this file. docs/deployment.md explains every entry.

name = {name}              # on every roster
data = "data.csv"           # .csv, .tsv (or .gz of these), .parquet (a file or a folder of them), .arrow, .npy, .npz,
                            # documents, or a folder of brain images; or [source] below, instead
# unit_column = "patient"   # rows with the same label belong to one person
identity = "identity.key"   # the private key that this site signs with: never send it
state = "state"             # the socket, consents and the audit log; its owner's alone
schema = "schema.toml"      # the public description of the data: zerosum site schema
# files = ["mask.nii.gz"]   # public files that studies use: masks, atlases, vocabularies
# metrics_file = "/var/lib/node_exporter/zerosum.prom"  # figures for monitors, in the OpenMetrics format
# on_proposal = ["/usr/bin/mail", "-s", "a plan waits", "steward@example.org"]
# kit = "kit"               # NVIDIA FLARE kit, whose certificate `zerosum site health` checks

[consent]
automatic = false           # true: plans that fit the policy need no steward

[policy]
population = {name}        # name of the people in the data: studies of the same people share one ledger
unit = "person"             # or "record"
adjacency = "replace-one"   # or "add-remove"
epsilon = 10.0              # lifetime budget of a person
delta = 1e-5
# study_epsilon = 2.0       # the most that one study may cost
# columns = ["age", "bmi"]  # the only columns that studies may use
# statistics = ["vector_sum"]
# noise = ["gaussian"]      # refuses Laplace noise; by default both laws are allowed
minimum_units = 10          # with fewer people every study is refused
minimum_colluders = 1       # at least this many sites may collude with the coordinator
minimum_honest = 2          # sites that neither collude nor are lost, this one included
data = "private"            # or "public", "synthetic"
ledger = "state/ledger.sqlite"
# counter = "/another/disk/ledger.counter"
# coordinator = "64 digits" # coordinator's key, which plans must pin and reports are signed with
# [policy.roster]           # the only sites to join with, and their identities
# east = "64 digits in hex" # or several, while a key is being replaced

# [children]                # sites below this one in trees, by their sockets
# east = "../east/state/socket"

# [source]                  # a database instead of `data`; then: zerosum site fetch
# engine = "postgresql"     # or "duckdb", "sqlite", "adbc", "fsspec"
# database = "postgresql://reader@localhost/research"
# query = "SELECT age, bmi FROM visits ORDER BY id"
# password_file = "password"  # of mode 0600; or password_env = "VARIABLE"

# [roles]                   # other users of this machine than the site's own
# sockets = "/run/zerosum"  # folder of the sockets
# stewards = "stewards"     # group that decides: zerosum site approve DIGEST --desk /run/zerosum/steward
# auditors = "auditors"     # group that reads the ledger: zerosum site ledger --desk /run/zerosum/auditor

[limits]
frame_bytes = 268435456     # a larger frame is refused
seconds = 600.0             # until a silent connection is closed
connections = 64            # at once
studies = 8                 # at once; further ones wait in a queue
start_seconds = 3600.0      # how long a place and budget stay reserved for a study that was agreed to
hold_seconds = 172800.0     # how long budget stays reserved for a silent study
settle_seconds = 600.0      # and after its last round, for attempts that are left
disk_free = "200 MB"        # with less, zerosum site health fails
decide_seconds = 604800.0   # when a plan has waited for the steward for longer, it fails too
metrics_seconds = 10.0      # between two writes of state/metrics.json
memory = "4 GB"             # for the rows of a study; more rows are read from a file without a name in `state`
"""


@site_app.command("init")
def site_init(
    folder: Annotated[Path, typer.Argument(help="A new folder for the site's file, key and state.")],
    name: Annotated[str | None, typer.Option(help="The site's name; the folder's, if none is given.")] = None,
    json_: Json = False,
) -> None:
    """Create a site: its identity, and a file to fill in."""
    from zerosum.report.record import write_whole
    from zerosum.study import SiteFile

    site_name = folder.absolute().name if name is None else name
    # A folder may have a name that no roster accepts: checked before the file and the key exist.
    check_name("a site", site_name)
    path = folder / "site.toml"
    # Other users of the machine decide and audit by the sockets of [roles], and need no access to the files.
    # Refuses to overwrite a file: a second call must not replace a policy.
    write_whole(path, _TEMPLATE.format(name=json.dumps(site_name)).encode(), private=True)
    # By the file that was just written: the key lies where the serving site will look for it.
    public = SiteFile.load(path).keep_identity().public.hex()
    if json_:
        terminal.print_json({"file": str(path), "name": site_name, "identity": public})
        return
    terminal.out.print(f"written: {path}; fill in the path of the data and the policy; then: zerosum site schema")
    terminal.out.print(f"identity, for the rosters of all sites: {public}", soft_wrap=True)


@site_app.command("fetch")
def site_fetch(site: SiteOption = Path("site.toml"), json_: Json = False) -> None:
    """Run the query of the site's file and store its result, the snapshot that schema and studies read.

    A serving site refuses to read a new snapshot until it is restarted, when it is compared with the schema.
    """
    from zerosum.site.audit_log import AuditLog
    from zerosum.study import SiteFile

    loaded = SiteFile.load(site)
    with terminal.progress("rows fetched so far") as shown:
        # An engine does not know beforehand how many rows a query has.
        snapshot = loaded.fetch(lambda rows: shown(rows, rows))
    AuditLog(loaded.audit_log).write(
        "fetched",
        f"{counted(snapshot.rows, 'row')} in {counted(len(snapshot.columns), 'column')} were fetched; the query has "
        f"the digest {snapshot.query_digest}, the snapshot {snapshot.digest}",
        rows=snapshot.rows,
    )
    if json_:
        record = {"file": str(snapshot.path), "rows": snapshot.rows, "columns": list(snapshot.columns)}
        digests = {"query": snapshot.query_digest, "digest": snapshot.digest, "fetched": snapshot.fetched}
        terminal.print_json(record | digests)
        return
    rows = f"{counted(snapshot.rows, 'row')}, {counted(len(snapshot.columns), 'column')}"
    terminal.out.print(f"fetched: {rows}, into {snapshot.path}; then: zerosum site schema", soft_wrap=True)


@site_app.command("schema")
def site_schema(
    site: SiteOption = Path("site.toml"),
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Confirm the schema in its file, which other parties may learn.")
    ] = False,
    json_: Json = False,
) -> None:
    """Draft the schema of the data if there is none, compare the data with it, and with --confirm let the site serve
    studies with it. Plans are refused by the schema, never by the rows. The output is for the steward only."""
    from zerosum.kernel.statistic import Adjacency
    from zerosum.report.record import write_whole
    from zerosum.site.schema import DataSchema
    from zerosum.study import SiteFile
    from zerosum.study.site_schema import check_schema, confirm_schema, confirmed_schema, draft_schema, schema_text

    loaded = SiteFile.load(site)
    # A draft needs no policy, so that it can be made for a rehearsal; a site that serves has one.
    needed = confirm or loaded.policy is not None
    policy = loaded.own_policy() if needed else loaded.load_policy("person", Adjacency.REPLACE_ONE)
    path = loaded.schema_path
    drafted = not path.exists()
    with terminal.study_progress() as observer:

        def on_scan(done: int, planned: int) -> None:
            observer(Progress("loading", done, planned, loaded.name))

        if drafted:
            if confirm:
                raise BadStudy(f"there is no schema {path} to confirm: run `zerosum site schema` and read it first")
            write_whole(path, schema_text(draft_schema(loaded, policy, on_scan)).encode())
        # Read from the file also when it was just drafted: what is checked is what the steward will read and confirm.
        schema = DataSchema.load(path)
        found = check_schema(loaded, schema, policy, on_scan)
    # A schema that does not describe the data is not confirmed: plans would be accepted that the data cannot answer.
    if confirm and not found.faults:
        confirm_schema(loaded, schema)
    try:
        # A confirmation holds for one content: after an edit of the file the schema has to be confirmed again.
        confirmed = confirmed_schema(loaded) == schema
    except BadStudy:
        confirmed = False
    if json_:
        record = {"file": str(path), "drafted": drafted, "confirmed": confirmed, "digest": schema.digest()}
        shown = schema.model_dump(mode="json", exclude_none=True)
        terminal.print_json(record | {"faults": found.faults, "warnings": found.warnings, "schema": shown})
    else:
        if drafted:
            terminal.out.print(f"drafted from the data: {path}; read it, change it, then confirm it", soft_wrap=True)
            if schema.kind == "table" and loaded.unit_column is None:
                terminal.out.print("every row counts as one unit: set unit_column if several rows belong to one person")
        terminal.show_warnings([*(f"fault: {each}" for each in found.faults), *found.warnings])
        state = "confirmed" if confirmed else "not confirmed: zerosum site schema --confirm"
        if found.faults:
            state = (
                f"{'confirmed' if confirmed else 'not confirmed'}, and the data do not fit it: correct the faults first"
            )
        terminal.out.print(f"the schema {path} is {state}; digest {schema.digest()}", soft_wrap=True)
    if found.faults:
        # Faults were printed above, as JSON or text; only the exit code is left.
        raise typer.Exit(CheckFailed.exit_code)


@site_app.command("run")
def site_run(
    file: Annotated[Path, typer.Argument(help="The site's file.")] = Path("site.toml"), log_json: LogJson = False
) -> None:
    """Serve studies until SIGTERM. Every release needs the consent of the policy, the steward and the ledger.

    On a terminal, the steward is asked there about pending plans.
    """
    from zerosum.cli.consent_prompt import ConsentPrompt
    from zerosum.compute.devices import check_device
    from zerosum.site.audit_log import AuditLog
    from zerosum.site.budget import remaining_budget
    from zerosum.site.decisions import Consents
    from zerosum.site.health import faults
    from zerosum.site.metrics import Metrics
    from zerosum.site.proposal_hook import ProposalHook
    from zerosum.site.server import Server, only_one
    from zerosum.site.service import Service
    from zerosum.site.steward import decide
    from zerosum.study import SiteFile
    from zerosum.study.children import children_of
    from zerosum.study.site_data import review_question
    from zerosum.study.site_schema import data_version, ready_schema, served_units

    site = SiteFile.load(file)
    check_device(site.device)
    # Everything that can be wrong with the file fails here, before the socket exists.
    policy, identity, limits = site.own_policy(), site.keep_identity(), site.limits
    # Before the data are compared with the schema: a file that is replaced during the comparison has another version,
    # which the site refuses to read.
    version = data_version(site)
    schema = ready_schema(site, policy)
    start_logging(log_json)
    log = AuditLog(site.audit_log, lambda line: log_event(**line))
    consents = Consents(site.state_folder, automatic=site.consent.automatic)

    def decide_here(digest: str, decision: Decision) -> None:
        decide(consents, log, digest, decision, where="on the terminal")

    # One process per state folder. The stack closes what it holds in reverse order, also if the start fails half-way.
    with only_one(site.state_folder), ExitStack() as stack:
        service = Service(
            site.name,
            policy,
            identity,
            lambda plan: served_units(plan, site, schema, version),
            consents,
            log,
            schema=schema,
            review=lambda plan: review_question(plan, site, schema),
            most_studies=limits.studies,
            hold=limits.hold_seconds,
            start=limits.start_seconds,
            settle=limits.settle_seconds,
            former=site.former_identities(),
            children=site.children,
            connect=partial(children_of, site),
            kept=site.kept_secrets,
            on_proposal=ProposalHook(site.name, site.on_proposal),
        )
        stack.callback(service.close)
        server = Server(
            site.socket,
            service,
            frame_bytes=limits.frame_bytes,
            seconds=limits.seconds,
            connections=limits.connections,
        )
        for each in (signal.SIGTERM, signal.SIGINT):
            # `stop` returns at once and lets requests in progress finish: they may have been charged already.
            signal.signal(each, lambda *_: server.stop())
        # Before the threads that write files start: the sockets are made under a umask, which is that of the process.
        stack.enter_context(_desk(site, policy, consents, log))
        site.kept_secrets.forget_old()
        # Before a request is answered: a site that cannot write its audit log does not serve.
        log.write("started", f"site {site.name!r} serves, with identity {identity.public.hex()}")
        log_event("serving", f"site {site.name!r} serves at {site.socket}")
        stack.enter_context(
            Metrics(
                site.state_folder,
                service,
                consents,
                every=limits.metrics_seconds,
                text_file=None if site.metrics_file is None else site.folder / site.metrics_file,
                check=lambda: faults(policy, site.state_folder, consents, limits.health, service.ledger),
            )
        )
        # A service started by the system has no terminal; its steward uses `zerosum site approve` or the watch page.
        if sys.stdin is not None and sys.stdin.isatty() and not consents.automatic:
            stack.enter_context(
                ConsentPrompt(consents, decide_here, lambda plan: remaining_budget(plan, site.name, policy))
            )
        server.serve()
        log.write("stopped", f"site {site.name!r} was asked to stop, and did")


def _desk(site: SiteFile, policy: Policy, consents: Consents, log: AuditLog) -> AbstractContextManager[None]:
    """The sockets of stewards and auditors who are other users of this machine.

    Parameters
    ----------
    site : SiteFile
        Its table [roles] names the groups.
    policy, consents, log
        Of the serving site.
    """
    from zerosum.site import desk

    groups: dict[desk.Role, str] = {}
    if site.roles.stewards is not None:
        groups["steward"] = site.roles.stewards
    if site.roles.auditors is not None:
        groups["auditor"] = site.roles.auditors
    answers = desk.Desk(site.name, policy, consents, log, site.audit_log)
    return desk.serving(answers, site.folder / site.roles.sockets, groups)


@site_app.command("approve")
def site_approve(
    plan: Annotated[
        str, typer.Argument(help="A plan's file, its digest, or for a pending plan the first digits of the digest.")
    ],
    site: SiteOption = Path("site.toml"),
    desk: DeskOption = None,
) -> None:
    """Approve a plan: this site takes part in its study."""
    _decide(site, plan, "approved", desk=desk)


@site_app.command("refuse")
def site_refuse(
    plan: Annotated[
        str, typer.Argument(help="A plan's file, its digest, or for a pending plan the first digits of the digest.")
    ],
    site: SiteOption = Path("site.toml"),
    reason: Annotated[
        str, typer.Option(help="Reason in one line. The coordinator reads it: no facts about the data.")
    ] = "",
    desk: DeskOption = None,
) -> None:
    """Refuse a plan, immediately, also during its study; what was spent stays spent."""
    _decide(site, plan, "refused", reason, desk)


def _decide(path: Path, plan: str, decision: Decision, reason: str = "", desk: Path | None = None) -> None:
    """Store the steward's decision about a plan.

    Parameters
    ----------
    path : Path
        The site's file.
    plan : str
        A plan's file, its digest, or the first digits of the digest of a pending plan. With a file a steward can decide
        before the plan has arrived.
    decision : "approved" or "refused"
        The decision. The last one is valid.
    reason : str
        Reason of a refusal, which the coordinator reads.
    desk : Path, optional
        The stewards' socket of a serving site, for a user who may not read the site's files.
    """
    from zerosum.report.record import read_plan
    from zerosum.site.audit_log import AuditLog
    from zerosum.site.decisions import Consents
    from zerosum.site.steward import decide
    from zerosum.study import SiteFile

    if desk is not None:
        from zerosum.site.desk import ask

        # Computed here, from the file that the steward has read: the decision cannot be about another plan.
        digest = read_plan(Path(plan)).digest() if Path(plan).is_file() else plan
        do = "approve" if decision == "approved" else "refuse"
        terminal.out.print(ask(desk, do=do, digest=digest, reason=reason), soft_wrap=True)
        return
    site = SiteFile.load(path)
    consents = Consents(site.state_folder)
    read = read_plan(Path(plan)) if Path(plan).is_file() else None
    # With a file the digest is computed from the plan that the steward has read, not from what arrived.
    whole = consents.find(plan) if read is None else read.digest()
    words = decide(consents, AuditLog(site.audit_log), whole, decision, plan=read, reason=reason)
    terminal.out.print(words, soft_wrap=True)


@site_app.command("status")
def site_status(site: SiteOption = Path("site.toml"), desk: DeskOption = None, json_: Json = False) -> None:
    """Show whether the site is running, the plans that wait for the steward, and what was spent."""
    if desk is not None:
        _show_desk(desk, json_)
        return
    from zerosum.protocol.stream import alive
    from zerosum.site import metrics
    from zerosum.site.decisions import Consents
    from zerosum.site.ledger import Ledger
    from zerosum.study import SiteFile

    loaded = SiteFile.load(site)
    policy, consents = loaded.own_policy(), Consents(loaded.state_folder)
    figures: dict[str, Any] = {}
    with suppress(BadInput):  # damaged figures must not hide what waits
        figures = metrics.read(loaded.state_folder)
    waiting = [(digest, consents.proposal(digest)) for digest in consents.waiting()]
    record: dict[str, Any] = {
        "site": loaded.name,
        # 5 s, the default of `site health`; chosen by hand.
        "serves": alive(loaded.socket, 5.0),
        "waiting": [{"digest": digest, "study": plan.study, "algorithm": plan.algorithm} for digest, plan in waiting],
        # As of the last write of the metrics, by the serving process.
        "open": figures.get("open", []),
        "queue": figures.get("queue", []),
        "cap": {"epsilon": policy.epsilon, "delta": policy.delta},
        "spent": 0.0,
        "releases": 0,
    }
    # Before the first release there is no ledger, and nothing was spent.
    if policy.ledger_path.exists():
        with Ledger.inspect(policy.ledger_path, counter=policy.counter) as ledger:
            record |= {"spent": ledger.epsilon(policy.delta), "releases": len(ledger.entries())}
    if json_:
        terminal.print_json(record)
        return
    terminal.print_titled(visible(loaded.name), ": serves" if record["serves"] else ": does not serve")
    spent = f"{record['spent']:.4f} of {policy.epsilon:g} at delta {policy.delta:g}"
    terminal.out.print(f"epsilon spent: {spent}, in {counted(record['releases'], 'release')}")
    # The figures of a process that has ended name studies that no process continues.
    for each in record["open"] if record["serves"] else []:
        rounds = f"{each['rounds']} of {counted(each['planned'], 'round')}"
        terminal.out.print(f"in progress: {visible(each['study'])}, {rounds}", soft_wrap=True)
    for place, each in enumerate(record["queue"] if record["serves"] else [], start=1):
        since = datetime.fromtimestamp(each["since"], UTC).isoformat(timespec="seconds")
        terminal.out.print(f"in the queue, place {place}: {visible(each['study'])}, since {since}", soft_wrap=True)
    for digest, plan in waiting:
        terminal.out.print(f"waits for you: {digest}  {visible(plan.study)} ({plan.algorithm})", soft_wrap=True)


def _show_desk(desk: Path, json_: bool) -> None:
    """The status of a site for the users of one of its roles.

    Parameters
    ----------
    desk : Path
        The socket of the role.
    json_ : bool
        Whether to print JSON.
    """
    from zerosum.site.desk import ask

    record = ask(desk, do="status")
    if json_:
        terminal.print_json(record)
        return
    cap = record["cap"]
    terminal.print_titled(visible(record["site"]), ": serves")
    terminal.out.print(f"epsilon spent: {record['spent']:.4f} of {cap['epsilon']:g} at delta {cap['delta']:g}")
    for each in record["waiting"]:
        what = f"{visible(each['study'])} ({each['algorithm']})"
        terminal.out.print(f"waits for you: {each['digest']}  {what}", soft_wrap=True)


@site_app.command("plan")
def site_plan(
    plan: Annotated[str, typer.Argument(help="The digest of a plan, or the first digits for a pending one.")],
    out: Annotated[Path | None, typer.Option(help="A new file for the plan, instead of the terminal.")] = None,
    site: SiteOption = Path("site.toml"),
    desk: DeskOption = None,
) -> None:
    """Show a plan that arrived here, or write it to a file. No data are read."""
    from zerosum.kernel.plan import Plan
    from zerosum.report.record import privacy_report, write_whole
    from zerosum.site.decisions import Consents
    from zerosum.site.desk import ask
    from zerosum.study import SiteFile

    if desk is not None:
        text = str(ask(desk, do="plan", digest=plan)).encode()
    else:
        consents = Consents(SiteFile.load(site).state_folder)
        text = consents.plan(consents.find(plan)).to_json()
    if out is not None:
        write_whole(out, text)
        terminal.out.print(f"written: {out}", soft_wrap=True)
        return
    found = Plan.from_json(text)
    _show_question(found)
    terminal.show_report(privacy_report(found))
    terminal.out.print(f"digest {found.digest()}", soft_wrap=True)


def _show_question(plan: Plan) -> None:
    """Print the public question of a plan: purpose, permit, columns and their ranges.

    Parameters
    ----------
    plan : Plan
        A plan of another party. Invisible characters are written out, because a terminal obeys control characters.
    """
    from zerosum.cli.consent_prompt import range_lines

    terminal.print_titled(visible(plan.study), f": {plan.algorithm}")
    if plan.question.purpose:
        terminal.out.print(f"purpose: {visible(plan.question.purpose)}", soft_wrap=True, markup=False)
    for entry, given in plan.question.permit.items():
        terminal.out.print(f"permit, {visible(entry)}: {visible(given)}", soft_wrap=True, markup=False)
    terminal.out.print(f"columns: {', '.join(visible(name) for name in plan.question.columns)}", soft_wrap=True)
    for line in range_lines(plan):
        # The brackets of a range are text and not console markup.
        terminal.out.print(f"  {line}", soft_wrap=True, markup=False)
    defined = plan.question.preprocessing.get("definitions")
    for name, text in defined.items() if isinstance(defined, dict) else ():
        terminal.out.print(f"defined: {visible(name)} {visible(str(text))}", soft_wrap=True)


@site_app.command("dry-run")
def site_dry_run(
    plan: Annotated[str, typer.Argument(help="A plan's file, or the digest of a pending plan.")],
    site: SiteOption = Path("site.toml"),
    json_: Json = False,
) -> None:
    """Show what a plan would release and cost here, and whether this site would agree. Reads data; spends nothing."""
    from zerosum.report.record import privacy_report, read_plan
    from zerosum.site.decisions import Consents
    from zerosum.site.site import Site, own_position
    from zerosum.study import SiteFile
    from zerosum.study.site_data import Faults, fault_lines, load_for, review_question
    from zerosum.study.site_schema import ready_schema

    loaded = SiteFile.load(site)
    consents = Consents(loaded.state_folder, automatic=loaded.consent.automatic)
    proposal = read_plan(Path(plan)) if Path(plan).exists() else consents.proposal(consents.find(plan))
    policy, identity, digest = loaded.own_policy(), loaded.keep_identity(), proposal.digest()
    position = own_position(proposal, loaded.name, identity)
    # Each step is one that the site itself takes when the plan arrives, so the refusal is the one that would be sent.
    refusal: ZerosumError | None = None
    unfit: list[str] = []
    try:
        schema = ready_schema(loaded, policy)
        review_question(proposal, loaded, schema)
        faults: Faults = []
        member = Site(loaded.name, load_for(proposal, loaded, schema, faults), policy, identity, schema=schema)
        unfit = fault_lines(faults)
        try:
            member.review(proposal)
        finally:
            member.close()
    except ZerosumError as error:
        refusal = error
    decided = consents.decision(digest) or ("automatic" if consents.automatic else "waits for the steward")
    report = privacy_report(proposal)
    record: dict[str, Any] = {
        "digest": digest,
        "would_agree": refusal is None,
        "refusal": None if refusal is None else str(refusal),
        "unfit": unfit,
        "consent": decided,
        "epsilon": report.per_site[position].epsilon,
        "delta": proposal.delta,
        "plan": report.as_record(),
    }
    if json_:
        terminal.print_json(record)
        return
    _show_question(proposal)
    terminal.show_report(report)
    terminal.out.print(f"here: epsilon {record['epsilon']:.4f} at delta {proposal.delta:g}; nothing was spent")
    terminal.out.print(f"consent: {decided}")
    # These lines describe private data: they are printed for the steward and are in no message to a coordinator.
    terminal.show_warnings([f"not for others: {visible(each)}" for each in unfit])
    if refusal is not None:
        terminal.out.print(f"this site would refuse: {visible(str(refusal))}", soft_wrap=True)
        if refusal.detail:
            terminal.out.print(f"not for others: {visible(refusal.detail)}", soft_wrap=True)
    terminal.out.print(f"digest {digest}", soft_wrap=True)


@site_app.command("health")
def site_health(
    site: SiteOption = Path("site.toml"),
    seconds: Annotated[float, typer.Option(help="Seconds the site may take for an answer.")] = 5.0,
    json_: Json = False,
) -> None:
    """For monitors: exit code 0 if the site answers, its ledger is sound and can be written, its disks have room, its
    clock is not behind the ledger, no plan waits for too long, and its certificate is valid; 4 if not."""
    from zerosum.protocol.stream import alive
    from zerosum.site import health, metrics
    from zerosum.site.decisions import Consents
    from zerosum.site.ledger import Ledger
    from zerosum.study import SiteFile

    loaded = SiteFile.load(site)
    policy = loaded.own_policy()
    # First: the figures of a site that is down are old, and would give a misleading reason.
    if not alive(loaded.socket, seconds):
        raise CheckFailed(f"the site {loaded.name!r} does not answer at {loaded.socket}")
    try:
        with Ledger.inspect(policy.ledger_path, counter=policy.counter) as ledger:
            # Opening the ledger verifies its hash chain and its counter.
            entries, spent = len(ledger.entries()), ledger.epsilon(policy.delta)
            consents = Consents(loaded.state_folder)
            found = health.faults(policy, loaded.state_folder, consents, loaded.limits.health, ledger)
        record = metrics.read(loaded.state_folder)
        days = _certificate_days(loaded.folder / loaded.kit) if loaded.kit is not None else None
    except ZerosumError as error:
        raise CheckFailed(str(error)) from error
    # Also those that the serving process found: it may write where this user may not.
    found += [each for each in record.get("faults", []) if each not in found]
    # Three writes that did not come are no delay: the process hangs, or cannot write.
    if record and record["age_seconds"] > max(3 * loaded.limits.metrics_seconds, _STALE):
        found.append(f"the metrics are {record['age_seconds']:.0f} s old: the site's process hangs or cannot write")
    # An expired certificate would show only when FLARE connects again, perhaps in the middle of a study.
    if days is not None and days < 0:
        found.append(f"the certificate of the site {loaded.name!r} has expired: zerosum site request")
    if found:
        # In one message: an operator who repairs one fault must not wait for the next alarm to learn of another.
        raise CheckFailed("; ".join(found))
    if json_:
        terminal.print_json(
            {
                "site": loaded.name,
                "serves": True,
                "ledger": "sound",
                "releases": entries,
                "spent": spent,
                "cap": policy.epsilon,
                "certificate_days": days,
                "metrics": record,
            }
        )
        return
    terminal.out.print(f"{visible(loaded.name)} answers; its ledger is sound, with {counted(entries, 'release')}")
    if days is not None:
        terminal.out.print(f"its certificate is valid for {counted(days, 'day')}")


def _certificate_days(kit: Path) -> int:
    """Whole days until the first certificate of a FLARE kit expires; negative afterwards."""
    # FLARE is an optional package: only sites with a kit import it.
    from zerosum.flare.certificates import expires

    return (expires(kit) - datetime.now(UTC)).days
