"""Runs the named scenarios, or the scenarios of the table, and prints medians with their spread."""

from __future__ import annotations

import argparse
import asyncio
import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import against, machine, optimized, report, targets
from benchmarks.document import Document
from benchmarks.figures import Figure, print_figure
from benchmarks.peers import catalogue, method
from benchmarks.scenarios import (
    auth,
    backlog,
    bulk,
    bytes,
    claim,
    crowd,
    dashboard,
    deep,
    drain,
    e2e,
    fires,
    held,
    history,
    idle,
    limits,
    logins,
    metrics,
    payload,
    replicas,
    results,
    retention,
    running,
    scale,
    soak,
    statistics,
    submit,
    tenants,
    testing_kit,
    tls,
    topics,
    transactions,
    workflows,
)
from benchmarks.stand import Lengths, Load, Stand
from benchmarks.tables import Figures
from benchmarks.verdicts import Verdict
from tools.environment import Problem

# The scenarios of docs/benchmarks.md. Others run by name, or with "all"; long ones only by name.
TABLE: dict[str, Callable[[Stand], Coroutine[Any, Any, list[Figure]]]] = {
    "submit": submit.measure,
    "bulk": bulk.measure,
    "drain": drain.measure,
    "deep": deep.measure,
    "e2e": e2e.measure,
    "idle": idle.measure,
    "crowd": crowd.measure,
    "replicas": replicas.measure,
    "payload": payload.measure,
    "auth": auth.measure,
    "tls": tls.measure,
    "topics": topics.measure,
    "running": running.measure,
    "retention": retention.measure,
    "history": history.measure,
    "backlog": backlog.measure,
    "limits": limits.measure,
    "tenants": tenants.measure,
    "results": results.measure,
    "transactions": transactions.measure,
    "workflows": workflows.measure,
}
SHORT = TABLE | {
    "claim": claim.measure,
    "fires": fires.measure,
    "logins": logins.measure,
    "metrics": metrics.measure,
    "statistics": statistics.measure,
    "dashboard": dashboard.measure,
    "testing-kit": testing_kit.measure,
}
LONG = {
    "bytes": bytes.measure,
    "held": held.measure,
    "scale": scale.measure,
    "soak": soak.measure,
}
SCENARIOS = SHORT | LONG
ALL = "all"
TARGETS = "targets"
_REPEATS = 3

Result = TypeVar("Result")


def main() -> int:
    if any(argument == "--addr" or argument.startswith("--addr=") for argument in sys.argv[1:]):
        from benchmarks.load_generator.command import main as put_load_on

        return put_load_on(sys.argv[1:])
    parser = _parser()
    options = parser.parse_args()
    unknown = sorted(set(options.scenario) - SCENARIOS.keys() - {ALL, TARGETS})
    if unknown:
        parser.error(f"there is no scenario {', '.join(unknown)}; known are {', '.join(SCENARIOS)}")
    is_for_targets = TARGETS in options.scenario
    if is_for_targets and (len(options.scenario) > 1 or options.report):
        parser.error(f"{TARGETS} stands alone: it measures less than the page has, so it takes no --report")
    if options.against and (is_for_targets or options.report or options.peers is not None):
        parser.error("--against compares two commits of pulse: it takes no targets, --report or --peers")
    if options.rounds < 1 or (options.repeats or 1) < 1:
        parser.error("--rounds and --repeats are at least 1")
    names = list(SHORT) if ALL in options.scenario else options.scenario or list(TABLE)
    try:
        optimized.move(options.python)
        if options.against:
            return against.compare(
                options.against, list(dict.fromkeys(names)), options.rounds, _of_turn(options), options.json
            )
    except Problem as problem:
        print(f"dev.py: {problem}", file=sys.stderr)
        return 1
    if is_for_targets:
        names = list(targets.SCENARIOS)
    try:
        peers = catalogue.chosen(options.peers)
        if is_for_targets and options.peers == "":
            peers = targets.PEERS
    except catalogue.UnknownPeer as error:
        parser.error(str(error))
    load = Load(options.jobs, options.streams, options.concurrency)
    lengths = Lengths(options.seconds, options.minutes)
    with Stand(options.db, options.repeats or _REPEATS, load, lengths, is_trial=options.trial) as stand:
        stand.plain_python = optimized.plain()
        stand.is_brief = is_for_targets
        document = measure(stand, names, peers)
    if options.json:
        document.write(options.json)
    if options.report:
        report.write(document)
    has_failed = any(verdict.is_good is False for verdict in document.verdicts)
    return int(has_failed and not document.is_trial)


def measure(stand: Stand, names: Sequence[str], peers: Sequence[str]) -> Document:
    about = _run(machine.describe(stand.server_dsn, stand.plain_python))
    print(machine.line(about), file=sys.stderr)
    _run(stand.look_around())
    if peers:
        peers = _run(catalogue.prepare(peers))
    figures: list[Figure] = []

    def take(measured: Sequence[Figure]) -> None:
        figures.extend(measured)
        for figure in measured:
            print_figure(figure)

    for name in names:
        try:
            take(_run(SCENARIOS[name](stand)))
        except Exception as error:  # A run of an hour is not lost for one of its scenarios.
            traceback.print_exc()
            stand.verdicts.append(Verdict(name, f"it failed: {type(error).__name__}: {error}", False))
        for peer in peers if name in method.SCENARIOS else ():
            if not stand.is_brief or peer in targets.PEERS_IN.get(name, ()):
                take(_run(catalogue.measure(stand, peer, name)))
    if stand.is_brief:
        judged = targets.judge(Figures(figures), has_pgo=about["has_pgo"])
        print(targets.as_table(judged), flush=True)
        stand.verdicts += [target.verdict for target in judged]
    if stand.disturbed_runs:
        print(f"Others used the machine in {stand.disturbed_runs} of the runs that count.", file=sys.stderr)
    return Document(
        about, figures, stand.repeats, stand.disturbed_runs, stand.is_trial, verdicts=tuple(stand.verdicts)
    )


def _of_turn(options: argparse.Namespace) -> list[str]:
    """Return the options that each turn of a comparison gets. A turn has one run by default."""
    load, lengths = Load(), Lengths()
    usual: dict[str, Any] = {"jobs": load.jobs, "streams": load.streams, "concurrency": load.concurrency}
    usual |= {"seconds": lengths.held_seconds, "minutes": lengths.soak_minutes, "db": None}
    given = {name: getattr(options, name) for name in usual}
    changed = [f"--{name}={value}" for name, value in given.items() if value != usual[name]]
    return [f"--repeats={options.repeats or 1}", *changed, *(["--trial"] if options.trial else [])]


def _run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run it in a fresh loop, uvloop's where that is installed: all producers in Python have the same."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    return uvloop.run(coroutine)


def _parser() -> argparse.ArgumentParser:
    load = Load()
    parser = argparse.ArgumentParser(
        prog="dev.py bench",
        description=__doc__,
        epilog="Load for a server that already runs: dev.py bench --addr HOST:PORT [--help]",
    )
    parser.add_argument(
        "scenario",
        nargs="*",
        metavar="SCENARIO",
        help=f"any of {', '.join(SCENARIOS)}, or all (but {' and '.join(LONG)}, which take long); "
        f"without one: {', '.join(TABLE)}; {TARGETS}: what the goals of the release are judged by",
    )
    parser.add_argument(
        "--peers",
        nargs="?",
        const="",
        metavar="NAME,…",
        help="measure other queues side by side: all that are known, or these",
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="compare the checkout with a commit, each with its own src and benchmarks, by turns",
    )
    parser.add_argument("--rounds", type=int, default=4, help="against: turns of each side (4)")
    parser.add_argument(
        "--repeats", type=int, help=f"runs per figure ({_REPEATS}; with --against 1 in each turn)"
    )
    parser.add_argument("--db", metavar="URL", help="a Postgres to use instead of the embedded one")
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="the Python to run everything on; by default one built with PGO, where there is one, "
        f"else that of .venv; {optimized.OWN}: that of .venv in any case",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument(
        "--report", action="store_true", help="rewrite the benchmark pages of docs/ and their plots"
    )
    parser.add_argument("--jobs", type=int, default=load.jobs, help=f"e2e: jobs in a run ({load.jobs})")
    parser.add_argument(
        "--streams", type=int, default=load.streams, help=f"e2e: worker processes ({load.streams})"
    )
    parser.add_argument(
        "--concurrency", type=int, default=load.concurrency, help=f"e2e: slots in each ({load.concurrency})"
    )
    lengths = Lengths()
    parser.add_argument(
        "--seconds",
        type=float,
        default=lengths.held_seconds,
        help=f"held: how long the transaction is held open ({lengths.held_seconds:g})",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=lengths.soak_minutes,
        help=f"soak: the duration of the load ({lengths.soak_minutes:g})",
    )
    parser.add_argument(
        "--trial",
        action="store_true",
        help="a twentieth of the work, to see that everything runs; its figures mean nothing",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
