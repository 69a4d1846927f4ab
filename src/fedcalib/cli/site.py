"""`fedcalib site`: run a site, look at what it was asked, and try a job before agreeing to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, final

import typer
from typer import Argument, Option

from fedcalib.cli import options
from fedcalib.cli import voice as exits
from fedcalib.cli.voice import Voice
from fedcalib.deploy import commands as deployment
from fedcalib.deploy.commands import check_keys, exec_command
from fedcalib.errors import InputError, PolicyError
from fedcalib.remote.journal import AuditLog
from fedcalib.remote.policy import Policy, derived
from fedcalib.workflows.documents import TextTable

_LIMITS = (
    *("epsilon_a_query", "epsilon_a_run", "epsilon_a_year", "delta"),
    *("fewest_records", "fewest_clients", "exact_runs_per_year", "most_records", "most_cells", "most_work"),
)


@final
class Engine(StrEnum):
    """What connects a site to the server."""

    NODE = "node"
    SUPERNODE = "supernode"


app = typer.Typer(help="Run a site, read its log, and preview jobs.", no_args_is_help=True)

State = Annotated[Path, Option(help="Private folder of the site: its runs, its budget, its log.")]
Data = Annotated[
    str,
    Option(
        help="The site's own records: a file, folder or pattern (CSV, Parquet, NPZ, Excel), a DuckDB database, "
        "'duckdb:' for a query on files, or postgresql://..."
    ),
]
Query = Annotated[
    str | None, Option(help="With a database: one SELECT, or a file that ends in .sql; run for reading only.")
]
Stream = Annotated[
    bool | None,
    Option(
        "--stream/--no-stream",
        help="Read records in batches for every answer, so that any number needs little memory; usual for databases.",
        show_default=False,
    ),
]
Server = Annotated[str, Option(help="Host and port of the server.")]
Label = Annotated[str | None, Option(help="Column of the true classes.")]
Groups = Annotated[list[str] | None, Option("--group", help="A column that jobs may group records by; repeatable.")]
Rival = Annotated[str | None, Option(help="A column of another model's scores of class 1, which jobs may compare.")]
Insecure = Annotated[bool, Option("--insecure", help="No TLS and no node authentication.")]
PolicyFile = Annotated[Path | None, Option(help="The site's policy.toml; without one the cautious default holds.")]


@app.command()
def start(
    *,
    data: Data,
    keys: Annotated[Path, Option(help="The site's own folder of keys.")],
    query: Query = None,
    stream: Stream = None,
    policy: PolicyFile = None,
    state: State = Path("site-state"),
    server: Server = "127.0.0.1:8000",
    engine: Annotated[
        Engine, Option(help="node: one process that runs no app of the server; supernode: Flower's own node.")
    ] = Engine.NODE,
    port: Annotated[int, Option(help="With --engine supernode: a free local port for its own processes.")] = 9094,
    trusted: Annotated[
        Path | None, Option(help="With --engine supernode: Flower's list of publishers whose signed apps are run.")
    ] = None,
    label: Label = None,
    score: options.Score = None,
    logits: options.Logits = None,
    probs: options.Probs = None,
    unit: options.Unit = None,
    group: Groups = None,
    rival: Rival = None,
    insecure: Insecure = False,
    monitor: Annotated[
        str | None, Option(help="Address for /health and /metrics, such as 127.0.0.1:9100; needs the extra metrics.")
    ] = None,
    json_logs: Annotated[bool, Option("--json-logs", help="Log one JSON object per line.")] = False,
    show: Annotated[bool, Option("--print", help="With --engine supernode: print its command and stop.")] = False,
) -> None:
    """Start a site that answers within its policy and writes everything down."""
    rules = Policy() if policy is None else Policy.read(policy)  # a wrong one is told now, not at the first query
    columns = {"label": label, "score": score, "logits": logits, "probs": probs, "unit": unit, "rival": rival}
    node = _places(data, query, {"policy": policy, "state": state}, keys)
    node |= _stated({**columns, "groups": _joined(group), "stream": _yes(stream)})
    check_keys(None if insecure else keys, insecure)
    link = _link(server, None if insecure else keys / "ca.crt")
    key = None if insecure else keys / "node"
    if engine is Engine.NODE:
        if show or trusted is not None:
            raise InputError("Expected --print and --trusted with --engine supernode, found them without.")
        _run_node(link, key, node, monitor, json_logs)
        return
    if stream or query is not None:
        raise InputError("Expected --stream and --query with --engine node, found them with Flower's own node.")
    _check_data(node, rules)
    exec_command(deployment.supernode(link, port, node, key, state / "node", trusted=trusted), show)


def _yes(stated: bool | None) -> str | None:
    return None if stated is None else "yes" if stated else "no"


def _joined(names: list[str] | None) -> str | None:
    return ",".join(names) if names else None


def _stated(words: Mapping[str, str | None]) -> dict[str, str]:
    return {name: word for name, word in words.items() if word is not None}


def _places(data: str, query: str | None, own: Mapping[str, Path | None], keys: Path) -> dict[str, str]:
    """Where a site's records, files and keys are; what is a file has to be there."""
    from fedcalib.data.databases import files_at

    keyed = {name: keys / f"{name}.json" for name in ("identity", "directory")}
    for path in (*files_at(data), *keyed.values()):
        if not path.exists():
            raise InputError(f"Expected the file {path}, found none.")
    words = {"data-path": str(Path(data).resolve()) if files_at(data) else data}
    if query is not None:
        words["query"] = str(Path(query).resolve()) if query.endswith(".sql") else query
    return words | {name: str(path.resolve()) for name, path in {**own, **keyed}.items() if path is not None}


def _run_node(
    link: deployment.Link, key: Path | None, node: dict[str, str], monitor: str | None, json_logs: bool
) -> None:
    """Run the node in this process, with a line per event on stderr."""
    from fedcalib.deploy.checks import node_facts
    from fedcalib.deploy.monitor import NodeVitals, node_metrics, served, write_logs
    from fedcalib.deploy.node import Node, WatchedSite  # needs Flower, which is an extra

    write_logs(json_logs)
    deployment.require_flower()
    vitals = NodeVitals()
    facts = partial(node_facts, node, link)
    with nullcontext() if monitor is None else served(monitor, vitals, node_metrics(vitals, facts)):
        Node(link, key, WatchedSite(node), Path(node["state"]), vitals).run()


def _check_data(node: dict[str, str], rules: Policy) -> None:
    """Read the records once: what is wrong with them is told here, and never to the server."""
    from fedcalib.remote.site import check_room, records_of  # needs cryptography, which is an extra

    check_room(records_of(node), rules)


@app.command()
def check(
    *,
    data: Data,
    keys: Annotated[Path, Option(help="The site's own folder of keys.")],
    query: Query = None,
    stream: Stream = None,
    policy: PolicyFile = None,
    state: State = Path("site-state"),
    server: Server = "127.0.0.1:8000",
    label: Label = None,
    score: options.Score = None,
    logits: options.Logits = None,
    probs: options.Probs = None,
    unit: options.Unit = None,
    group: Groups = None,
    rival: Rival = None,
    insecure: Insecure = False,
    format_: options.Shape = options.Format.TEXT,
) -> None:
    """Check everything that `site start` needs: policy, keys, records, state, budget, server, clock; ask nothing."""
    from fedcalib.deploy.checks import check_site

    words = {"label": label, "score": score, "logits": logits, "probs": probs, "unit": unit, "rival": rival}
    words |= {"groups": _joined(group), "stream": _yes(stream)}
    node = _places(data, query, {"policy": policy, "state": state}, keys) | _stated(words)
    found = check_site(node, keys, _link(server, None if insecure else keys / "ca.crt"))
    rows = tuple((one.name, "fine" if one.fine else "NOT FINE", one.what) for one in found)
    document = [{"name": one.name, "fine": one.fine, "what": one.what} for one in found]
    voice = Voice(format_ is options.Format.JSON)
    voice.result({"checks": document}, [TextTable("This site", ("", "", "what"), rows)])
    if not all(one.fine for one in found):
        raise typer.Exit(exits.REFUSED)


@app.command()
def log(
    *,
    state: State = Path("site-state"),
    verify: Annotated[bool, Option("--verify", help="Check that no line was changed, moved, added or cut.")] = False,
    head: Annotated[str | None, Option(help="A hash that --verify gave earlier; it must still be there.")] = None,
    format_: options.Shape = options.Format.TEXT,
) -> None:
    """Show what the site was asked, what it answered and what it refused."""
    audit = AuditLog(state / "log.jsonl")
    if not audit.path.exists():
        raise InputError(f"Expected a site's log in {audit.path}, found none; has the site been asked anything?")
    voice = Voice(format_ is options.Format.JSON)
    checked = audit.verify(head) if verify or head else None
    lines = audit.lines()
    columns = ("time", "action", "run", "step", "outcome", "what")
    table = TextTable("Log of the site", columns, tuple(_row(line) for line in lines))
    voice.result({"lines": lines, "verified": checked}, [table])
    if checked is not None:
        voice.note(f"Every line is as it was written. Note this hash elsewhere: {checked}")


@app.command()
def preview(
    job: Annotated[Path, Argument(help="The job's TOML file.")],
    *,
    policy: PolicyFile = None,
    format_: options.Shape = options.Format.TEXT,
) -> None:
    """Show what a job would ask and what it would cost here, and whether the policy allows it; ask nothing."""
    from fedcalib.deploy.job import Job

    voice = Voice(format_ is options.Format.JSON)
    rules = Policy() if policy is None else Policy.read(policy)
    outline = Job.read(job).outline()
    asked = [
        {"query": type(query).__name__, "mechanism": type(mechanism).__name__, "numbers": mechanism.width(query)}
        for query, mechanism in zip(outline.queries, derived(outline), strict=True)
    ]
    verdict = _verdict(rules, outline)
    rows = tuple((str(number), *map(str, one.values())) for number, one in enumerate(asked, 1))
    facts = tuple((name, "-" if value is None else str(value)) for name, value in verdict.items())
    table = TextTable("Would be asked", ("step", "query", "mechanism", "numbers sent"), rows)
    voice.result({"asked": asked, **verdict}, [table, TextTable("Here", ("", ""), facts)])


@app.command()
def policy() -> None:
    """Print the default policy as TOML, to start one's own from."""
    rules = Policy()
    lines = [
        "# What this site answers. Without a list of queries or models, every registered type is allowed.",
        '# queries = ["TopLabelTable", "ScoreTree"]',
        '# models = ["TemperatureFamily"]',
        '# allow_types = ["MyQuery"]  # of other installed packages',
        "# SecAgg lets the server read exact sums: no epsilon limits them, see exact_runs_per_year and fewest_clients.",
        f"privacy_models = {json.dumps(list(rules.privacy_models))}",
        *(f"{name} = {getattr(rules, name)}" for name in _LIMITS),
        f'quorum = "{rules.quorum}"',
        f"max_missing = {rules.max_missing}",
        f'tell_budget = "{rules.tell_budget}"  # or "exact", or "no"',
        f"tell_left_out = {json.dumps(rules.tell_left_out)}",
    ]
    print("\n".join(lines))


def _verdict(rules: Policy, outline: Any) -> dict[str, Any]:
    try:
        spending = rules.accept(outline)
    except PolicyError as refusal:
        return {"allowed": False, "reason": str(refusal), "epsilon": None, "unit": None}
    if spending is None:
        return {"allowed": True, "reason": "Exact sums: no epsilon is claimed.", "epsilon": None, "unit": None}
    return {"allowed": True, "reason": spending.statement, "epsilon": spending.epsilon, "unit": spending.unit}


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    what = line.get("reason") or ", ".join(line.get("queries", ()))
    step = "" if "step" not in line else f"{line['step']}/{line.get('attempt', 0)}"
    words = (line.get("time"), line.get("action"), str(line.get("run", ""))[:8], step, line.get("outcome"), what)
    return tuple(str(word) for word in words)


def _link(server: str, authority: Path | None) -> deployment.Link:
    host, sign, port = server.rpartition(":")
    if not sign or not port.isdigit():
        raise InputError(f"Expected --server HOST:PORT, found '{server}'.")
    return deployment.Link(host, int(port), authority)
