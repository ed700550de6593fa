"""`pulse topics`, `pulse workers` and `pulse top`, piped and at a terminal."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import pulse as sdk
from pulse_cli.terminal import Line, line_width
from pulse_cli.top import Snapshot, frame
from pulse_cli.topics.views import topic_table
from pulse_cli.workers import describe_held, gone_first, worker_row
from tests.cli.command_line import CommandLine, ended, plain_text, until
from tests.cli.conftest import TASKS
from tests.cli.serving import serving
from tests.rows import each_row
from tools.cli_fields import PLAIN
from tools.cli_shapes import SHAPES

NOW = datetime.now(UTC)
NOTHING = sdk.Rates(0, 0, 0, 0)


@contextmanager
def working_beside(pulse: CommandLine, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a worker for the topic forever, for the length of a block."""
    (directory / "tasks.py").write_text(TASKS)
    command = ["worker", "tasks:app", "--topics", "forever", "--concurrency", "3"]
    with pulse.process(*command, cwd=directory) as worker:
        try:
            yield worker
        finally:
            worker.kill()
            worker.communicate()


def text(lines: list[Line]) -> list[str]:
    return ["".join(cell.text for cell in line) for line in lines]


# ---------------------------------------------------------------- an empty queue


def test_empty_queue_says_what_to_do_next(database_dsn: str, tmp_path: Path) -> None:
    with serving(database_dsn) as address:
        fresh = CommandLine(tmp_path, {"PULSE_ADDR": address})
        assert "pulse submit TOPIC" in fresh("topics").err
        assert "pulse worker MODULE:APP" in fresh("workers").err
        assert "pulse worker MODULE:APP" in fresh("workers", "--jobs").err
        for command in ("topics", "workers"):
            assert fresh(command, "-o", "json").json == []
            assert fresh(command, "-o", "plain").out == ""
        shown = fresh("top").out
        assert "No topic has jobs" in shown
        assert "No worker is connected" in shown


# ---------------------------------------------------------------- topics


@pytest.fixture
def two(own: CommandLine, topic: str) -> tuple[str, str]:
    """Two topics, one with jobs to do and one where all are canceled."""
    busy, idle = f"{topic}-busy", f"{topic}-idle"
    own("submit", busy, "--count", "3")
    own("submit", busy, "--delay", "1h")
    own("submit", idle)
    own("jobs", "cancel", "--topic", idle, "--yes")
    until(own, ["topics"], lambda topics: any(found["topic"] == idle for found in topics))
    return busy, idle


def test_topics_are_counted_by_what_becomes_of_them(own: CommandLine, two: tuple[str, str]) -> None:
    found = {shape["topic"]: shape for shape in own("topics", "-o", "json").json}
    busy, idle = (found[name] for name in two)
    assert (busy["ready"], busy["waiting"], busy["canceled"], busy["paused"]) == (3, 1, 0, False)
    assert busy["oldest_ready_at"].endswith("Z")
    assert (idle["ready"], idle["canceled"], idle["oldest_ready_at"]) == (0, 1, None)
    documented = next(shape for title, shape in SHAPES.items() if title.startswith("A topic, in"))
    assert list(busy) == list(documented)
    rows = {row[0]: row for row in own("topics", "-o", "plain").rows}
    assert [rows[name][1:3] for name in two] == [["3", "1"], ["0", "0"]]
    assert {len(row) for row in rows.values()} == {len(PLAIN["`topics`"])}


def test_table_of_topics_has_a_total_and_no_color_in_a_pipe(own: CommandLine, two: tuple[str, str]) -> None:
    result = own("topics")
    assert "\x1b" not in result.out
    header, *lines, total = result.out.splitlines()
    assert header.split()[:5] == ["TOPIC", "READY", "OLDEST", "WAIT", "RUN"]
    assert total.split()[:2] == ["total", f"{sum(int(line.split()[1]) for line in lines)}"]
    (busy,) = [line for line in lines if line.startswith(two[0])]
    assert busy.endswith("none")  # of the workers that it would need


def test_topics_are_searched_and_cut_with_a_sentence(own: CommandLine, two: tuple[str, str]) -> None:
    busy, idle = two
    assert [row[0] for row in own("topics", "--search", busy, "-o", "plain").rows] == [busy]
    assert "No topic contains" in own("topics", "--search", "no-such-name").err
    first = own("topics", "--search", busy[: -len("busy")], "--limit", "1")
    assert busy in first.out
    assert idle not in first.out
    assert "1 of 2 topics are shown" in first.err
    cursor = first.err.split()[-1]
    following = own("topics", "--search", busy[: -len("busy")], "--cursor", cursor, "-o", "json").json
    assert [shape["topic"] for shape in following] == [idle]


@pytest.mark.parametrize("columns", [80, 140])
def test_topics_fit_the_terminal(own: CommandLine, two: tuple[str, str], columns: int) -> None:
    lines = plain_text(own.screen("topics", columns=columns).out).splitlines()
    assert max(map(len, lines)) <= columns
    assert ("DONE/H" in lines[0]) == (columns == 140)


# ---------------------------------------------------------------- workers


def test_workers_show_held_jobs_until_their_leases_end(own: CommandLine, tmp_path: Path) -> None:
    own("submit", "forever", "--count", "4")
    with working_beside(own, tmp_path) as process:
        (worker,) = until(own, ["workers"], lambda found: found and found[0]["held_count"] == 3)
        assert (worker["topics"], worker["capacity"]) == (["forever"], 3)
        assert worker["server"]
        assert {job["topic"] for job in worker["held"]} == {"forever"}
        documented = next(shape for title, shape in SHAPES.items() if title.startswith("A worker, in"))
        assert list(worker) == list(documented)
        assert "3/3" in own("workers").out
        (row,) = own("workers", "-o", "plain").rows
        assert len(row) == len(PLAIN["`workers`"])
        held = own("workers", "--jobs", "-o", "plain").rows
        assert [row[:2] for row in held] == [[worker["worker_id"], job["id"]] for job in worker["held"]]
        assert {len(row) for row in held} == {len(PLAIN["`workers --jobs`"])}
        shown = own.screen("workers", "--jobs").out
        assert "holds 3 of 3" in shown
        assert all(job["id"] in shown for job in worker["held"])

        process.send_signal(signal.SIGKILL)
        until(own, ["workers"], lambda found: found[0]["connected_at"] is None)
    assert "gone, " in own("workers").out
    shown = own.screen("workers").out
    assert f"\x1b[31m{worker['worker_id']}" in shown
    assert "gone" in own("workers", "--jobs").out


# ---------------------------------------------------------------- top


def test_top_fits_80_by_24_and_ends_with_q(own: CommandLine, topic: str) -> None:
    own("dispatch", "pause", "--topic", topic, "--reason", "mail is down")
    with own.terminal("top", "--interval", "200ms", columns=80, lines=24) as child:
        child.expect("q quits")
        child.expect(f"PAUSED: {topic} for .*, 0 waiting: mail is down")
        child.expect("TOPIC")
        child.expect("WORKER|No worker is connected")
        own("submit", topic, "--count", "1234")
        child.expect(f"{topic} for .*, 1,234 waiting")
        child.press("\x1bOq")  # a key whose sequence has a q in it
        child.press("q")
        assert ended(child) == 0
        assert child.before.rstrip().endswith("\x1b[?25h\x1b[?1049l")  # the screen is as it was
        assert "Traceback" not in child.before
    own("dispatch", "resume", "--topic", topic)
    own("jobs", "cancel", "--topic", topic, "--yes")


def test_top_ends_with_ctrl_c(own: CommandLine, two: tuple[str, str]) -> None:
    with own.terminal("top", columns=140) as child:
        child.expect("THROUGHPUT")
        child.sendintr()
        assert ended(child) == 0


def test_piped_top_is_one_snapshot(own: CommandLine, two: tuple[str, str]) -> None:
    with own.process("top") as process:
        out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert two[0] in out
    assert "\x1b" not in out
    shape = own("top", "-o", "json").json
    documented = next(shape for title, shape in SHAPES.items() if title.startswith("A snapshot of"))
    assert list(shape) == list(documented)
    assert two[0] in {topic["topic"] for topic in shape["topics"]}
    assert [row[0] for row in own("top", "-o", "plain").rows] == list(documented)


def test_top_and_tail_go_on_when_the_server_comes_back(
    own_database: str, tmp_path: Path, kept_address: str
) -> None:
    with serving(own_database, PULSE_GRPC_ADDR=kept_address) as address:
        pulse = CommandLine(tmp_path, {"PULSE_ADDR": address})
        quick = ["--interval", "200ms", "--timeout", "1s"]
        top = pulse.terminal("top", *quick)
        tail = pulse.process("jobs", "tail", "--topic", "delta", "-o", "json")
        screen = top.__enter__()
        screen.expect(r"ready [\d,]+")  # it has seen the queue, and can show that once the server is gone
        assert tail.stderr is not None
        assert tail.stdout is not None
        tail.stderr.readline()
    try:
        screen.expect("Snapshot of .* ago")
        screen.expect("No pulsed answers")
        with serving(own_database, PULSE_GRPC_ADDR=kept_address):
            pulse("submit", "delta")
            screen.expect("delta")
            gap = json.loads(tail.stdout.readline())
            assert gap == {"event": "gap", "missed": 0, "interrupted": True}
            pulse("submit", "delta")
            assert json.loads(tail.stdout.readline())["topic"] == "delta"
        screen.press("q")
        assert ended(screen) == 0
    finally:
        top.__exit__(None, None, None)
        tail.kill()
        tail.communicate()


def test_top_waits_for_a_server_that_was_never_there(alone: CommandLine) -> None:
    with alone.terminal("top", "--addr", "127.0.0.1:1", "--timeout", "200ms", "--interval", "200ms") as child:
        child.expect("No pulsed answers")
        child.press("q")
        assert ended(child) == 0


def test_piped_top_without_a_server_is_5(alone: CommandLine) -> None:
    for command in ("top", "topics", "workers"):
        result = alone(command, "--addr", "127.0.0.1:1", "--timeout", "200ms")
        assert (result.code, result.out) == (5, "")


# ---------------------------------------------------------------- what stands where


def topic_named(
    name: str, *, ready: int = 0, dead: int = 0, done: int = 0, paused: bool = False
) -> sdk.TopicInfo:
    minute = sdk.Rates(done, done, 0, 0)
    oldest = NOW - timedelta(minutes=5) if ready else None
    quick = sdk.Latency(minute.completed, 0.1, 0.2, 0.3)
    return sdk.TopicInfo(name, ready, 0, 0, dead, 0, oldest, minute, minute, paused, 1, quick, quick)


def worker_named(name: str, *, is_connected: bool = True) -> sdk.WorkerInfo:
    held = sdk.HeldJob("0199c0de-0000-7000-8000-000000000001", "t", 1, NOW, NOW + timedelta(seconds=20))
    return sdk.WorkerInfo(name, ("t",), 5, NOW if is_connected else None, "a:1", 30, (held,))


def snapshot(topics: int, workers: int, *, paused: bool = False) -> Snapshot:
    return Snapshot(
        sdk.DispatchStatus(paused, "maintenance " * 20, NOW, {}),
        [topic_named(f"topic-{'x' * (n % 60)}-{n}", ready=n * 10**4, dead=n, done=n) for n in range(topics)],
        [worker_named(f"worker-{'y' * (n % 60)}-{n}", is_connected=n % 2 == 0) for n in range(workers)],
        NOW,
    )


@each_row("size", [(80, 24), (140, 50), (60, 10), (40, 5), (20, 2)])
@each_row("amounts", [(0, 0), (3, 2), (40, 3), (2, 40), (100, 100)])
@each_row("paused", [False, True])
def test_screen_fits(size: tuple[int, int], amounts: tuple[int, int], paused: bool) -> None:
    width, height = size
    lines = frame(snapshot(*amounts, paused=paused), range(24), "address", "no answer " * 9, width, height)
    assert len(lines) <= height
    assert max(map(line_width, lines)) <= width


def test_screen_of_80_by_24_shows_something_of_everything() -> None:
    shown = text(frame(snapshot(100, 100, paused=True), range(24), "address", "", 80, 24))
    assert "PAUSED: everything" in shown[1]
    assert "ready 49,500,000" in shown[2]
    assert sum(line.startswith("topic-") for line in shown) >= 8
    assert sum(line.startswith("worker-") for line in shown) >= 3
    assert sum("more" in line for line in shown) == 2


def test_topic_with_the_most_to_do_comes_first() -> None:
    topics = [topic_named("idle"), topic_named("busy", ready=5), topic_named("dead", dead=3)]
    seen = Snapshot(sdk.DispatchStatus(False, "", None, {}), topics, [], NOW)
    shown = text(frame(seen, (), "", "", None, None))
    names = [line.split()[0] for line in shown if line.startswith(("idle", "busy", "dead "))]
    assert names == ["busy", "dead", "idle"]


def test_worker_that_is_gone_comes_first_in_red() -> None:
    workers = [worker_named("a"), worker_named("b", is_connected=False)]
    gone, _ = gone_first(workers)
    row = worker_row(gone, NOW)
    assert (row[0].text, row[0].style, row[3].text) == ("b", "red", "gone, 20s left")
    assert worker_row(gone, NOW + timedelta(minutes=1))[3].text == "gone, overdue"
    assert "  … and 29 more" in text(list(describe_held(workers, 80)))


def test_paused_topics_have_a_column_only_while_there_are_some() -> None:
    assert "paused" not in "".join(text(topic_table([topic_named("a")], None)))
    assert text(topic_table([topic_named("a", paused=True)], None))[1].endswith("paused")
