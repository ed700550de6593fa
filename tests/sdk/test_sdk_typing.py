"""What a user with `mypy --strict` sees."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pulse

ROOT = Path(__file__).parents[2]

USAGE = """
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
import pulse

p = pulse.Pulse()
s = pulse.SyncPulse()

@dataclass
class Email:
    to: str

@p.job("document")
async def document(args: Email, ctx: pulse.Context) -> None: ...

@p.job("plain")
async def plain(ctx: pulse.Context, to: str, copies: int = 1) -> int: return copies

@p.resource
def mailer() -> Iterator[Email]: yield Email("a")

@p.middleware
async def around(call: pulse.JobCall, call_next: pulse.CallNext) -> None: await call_next()

@p.enqueue_middleware
async def stamped(enqueue: pulse.Enqueue, call_next: pulse.CallNext) -> None:
    enqueue.metadata["tenant"] = "ada"
    await call_next()

@p.job("injected")
async def injected(to: str, mailer: Email = pulse.INJECTED) -> None: ...

@s.job("blocking")
def blocking(to: str) -> str: return to

def fetch(url: str) -> list[int]: return []
async def fetch_async(url: str) -> list[int]: return []

@p.job("children")
async def children(ctx: pulse.Context) -> int:
    parent: pulse.Parent = await ctx.parents["plain"]
    node: pulse.Node[int] = await ctx.workflow.add(plain, "a", before="last")
    return len([parent.result async for parent in ctx.parents])

@p.job("children-def")
def children_def(ctx: pulse.SyncContext) -> str:
    parent: pulse.Parent = ctx.parents["plain"]
    ctx.workflow.add("plain", after=[parent.name])
    return ", ".join(parent.name for parent in ctx.parents)

async def workflows() -> None:
    async with p.workflow("nightly") as flow:
        first = flow.add(plain, "a", name="first")
        second = flow.add(children_def, after=first, when="always")
        flow.add(plain.s("a", copies=2), after=[first, second])
    number: int = await flow.handle.result(first)
    text: str = await flow.handle.result(second)
    info: pulse.WorkflowInfo = await flow.handle.wait(timedelta(seconds=1))
    run = await p.start(pulse.group(plain.s(to) for to in ("a", "b")).then(children.s()))
    with s.workflow("nightly") as blocked:
        sent = blocked.add(blocking, "a")
    text = blocked.handle.result(sent)

@p.job("steps")
async def steps(ctx: pulse.Context, url: str) -> int:
    rows: list[int] = await ctx.step("fetch", fetch, url)
    rows = await ctx.step("fetch async", fetch_async, url)
    await ctx.sleep(timedelta(days=1))
    email: Email = await ctx.wait_for("approved", returns=Email)
    return len(rows)

@p.job("blocking steps")
def blocking_steps(ctx: pulse.SyncContext, url: str) -> int:
    rows: list[int] = ctx.step("fetch", fetch, url)
    rows = ctx.step("fetch async", fetch_async, url)
    rows = ctx.step("page", fetch, url, index=1)
    ctx.sleep(timedelta(days=1))
    email: Email = ctx.wait_for("approved", returns=Email, timeout=timedelta(days=1))
    ctx.hold(timedelta(seconds=1))
    return len(rows)

@s.job("blocking document")
def blocking_document(args: Email, ctx: pulse.SyncContext) -> None: ...

@s.job("blocking by name")
def blocking_by_name(to: str, *, ctx: pulse.SyncContext) -> None: ...

@p.job("options", max_attempts=8, timeout=timedelta(minutes=2), retry=pulse.Backoff(factor=3))
async def options(to: str, *, ctx: pulse.Context) -> None: ...

@p.job("by name")
async def by_name(to: str, copies: int = 1, *, urgent: bool = False, ctx: pulse.Context) -> int: return copies

@p.job("context alone")
async def context_alone(*, ctx: pulse.Context) -> None: ...

router = pulse.Router()

@router.job("routed", retry=lambda attempt, error: timedelta(seconds=attempt), discard_on=ValueError)
async def routed(args: Email) -> None: ...

async def right() -> None:
    handle: pulse.JobHandle = await document.enqueue(Email("a"))
    await document.options(priority=3, key="k").enqueue(Email("a"))
    await plain.enqueue("a", copies=2)
    await injected.enqueue("a")
    await blocking_steps.enqueue("url")
    number_of_rows: int = blocking_steps(pulse.SyncContext(signals={"approved": Email("a")}), "url")
    blocking_document.enqueue(Email("a"))
    blocking_by_name.enqueue("a")
    await injected("a", mailer=Email("fake"))
    email: Email = pulse.Context(state={Email: Email("fake")}).state[Email]
    number: int = await plain(pulse.Context(), "a")
    text: str = blocking("a")
    stored: pulse.JobHandle = blocking.enqueue("a")
    info: pulse.JobInfo = await p.get_job(handle.id)
    typed: pulse.JobHandle[int] = await plain.enqueue("a")
    number = await typed.result(timedelta(seconds=1))
    number = await (await plain.options(priority=1).enqueue("a")).result()
    numbers: list[int] = await pulse.gather(typed, *await plain.enqueue_many([{"to": "a"}]))
    async for finished in pulse.as_completed([typed]):
        number = await finished.result()
    number = await plain.handle("id").result()
    info = await handle.wait()
    text = blocking.enqueue("a").result()
    texts: list[str] = s.gather(*blocking.enqueue_many([{"to": "a"}]))
    for one in s.as_completed([blocking.enqueue("a")]):
        text = one.result()
    async for job in p.iter_jobs(status=pulse.JobStatus.RUNNING):
        info = job
    declared: pulse.Declaration = p.every("plain", timedelta(minutes=5))
    schedule: pulse.ScheduleInfo = await p.cron("plain", "@daily", tz="Europe/Paris", catch_up="skip")
    schedule = await p.schedule("plain", None, pulse.After(timedelta(1)))
    fired: pulse.JobHandle = await p.schedules.fire(schedule)
    schedule = s.schedules.update(schedule, spec=pulse.Cron("@hourly"))
    paused: bool = s.dispatch_status().paused
    handles: list[pulse.SyncJobHandle] = s.enqueue_many("plain", [1, 2], delay=timedelta(1))
    for job in s.iter_jobs(topic="plain"):
        info = job
    for changed in s.watch(topics=["plain"]):
        seen: pulse.Transitions = changed
    done: list[int] = list(s.cancel_matching(reason="r", topic="plain"))
    async for schedule in p.schedules.iter():
        pass
    await options.enqueue("a")
    await by_name.enqueue("a")
    await by_name.enqueue("a", 2, urgent=True)
    number = await (await by_name.options(priority=1).enqueue(to="a", copies=2)).result()
    number = await by_name("a", ctx=pulse.Context())
    await context_alone.enqueue()
    await routed.enqueue(Email("a"))
    await routed.enqueue_many([Email("a"), routed.with_options(Email("b"), priority=3)])
    settings: pulse.TopicSettings = await p.set_topic("plain", running=5, keep_completed="forever")
    settings = s.set_topic("plain", rate=pulse.Rate(5, timedelta(1)), backoff="default")
    p.include(router)
    s.include(pulse.SyncRouter())

async def wrong() -> None:
    await document.enqueue("a")
    await plain.enqueue(copies=2)
    await plain.enqueue("a", copies="many")
    blocking.enqueue(5)
    await blocking_steps.enqueue(5)
    blocking_steps(pulse.Context(), "url")
    blocking_document.enqueue("a")
    blocking_by_name.enqueue(5)
    await by_name.enqueue(5)
    await by_name.enqueue("a", "many")
    await by_name.enqueue("a", 2, True)
    await context_alone.enqueue(1)
    handled: pulse.JobHandle[str] = await by_name.enqueue("a")
    rows: list[str] = pulse.SyncContext().step("fetch", fetch, "url")
    await document.options(prioritty=3).enqueue(Email("a"))
    await p.schedule("plain", None, timedelta(1))
    p.every("plain", timedelta(1), catch_up="most")
    await s.every("plain", timedelta(1))
    s.get_job(5)
    s.get_job("j", timeout=3)
    s.list_jobs(topc="plain")
    s.list_jobs(topic=5)
    s.prioritize_matching(topic="plain")
    s.schedules.update("nightly", specc=pulse.Cron("@hourly"))
    handle: pulse.JobHandle = s.enqueue_many("plain", [])
    p.job("wrong", max_retries=3)
    p.job("wrong", running="5")
    await p.set_topic("plain", running="many")
    s.set_topic("plain", speed=5)
    p.register("wrong", plain.function, timeout=5)
    await routed.enqueue(5)
    plain.s(5)
    pulse.chain(plain)
    p.workflow("nightly").add(plain, "a", when="sometimes")
    routed.with_options(Email("b"), prio=3)
    s.include(router)
    raise pulse.Snooze(5)
"""


VERBS = [name for name in dir(pulse.Pulse) if not name.startswith("_")]
VERBS += [f"schedules.{name}" for name in dir(pulse.Schedules) if not name.startswith("_")]
VERBS += [f"workflows.{name}" for name in dir(pulse.Workflows) if not name.startswith("_")]


def test_enqueue_is_typed_by_the_handler(tmp_path: Path) -> None:
    lines = USAGE.splitlines()
    first_wrong = lines.index("async def wrong() -> None:") + 2
    checked = mypy(tmp_path, USAGE)
    complaints = {int(line.split(":")[1]) for line in checked.splitlines() if ": error:" in line}
    assert complaints == set(range(first_wrong, len(lines) + 1)), checked


def test_blocking_verbs_have_the_types_of_the_async_ones(tmp_path: Path) -> None:
    declaring = [VERBS.index(verb) for verb in ("every", "cron")]
    lines = ["import pulse", "p = pulse.Pulse()", "s = pulse.SyncPulse()"]
    lines += [f"reveal_type({client}.{verb})" for client in "ps" for verb in VERBS]
    revealed = re.findall(r'Revealed type is "(.*)"', mypy(tmp_path, "\n".join(lines)))
    expected, found = revealed[: len(VERBS)], revealed[len(VERBS) :]
    assert len(expected) == len(found) == len(VERBS)
    for at in declaring:  # what these return for asyncio is awaited
        expected[at] = expected[at].removesuffix(" -> pulse.schedules.Declaration")
    for verb, expectation, text in zip(VERBS, expected, found, strict=True):
        assert parts(text) == parts(blocking(expectation)), verb


def blocking(revealed: str) -> str:
    """Return the type that a blocking verb has, given that of the async one."""
    for pattern, replacement in (
        (r" -> typing\.Coroutine\[Any, Any, None\]$", ""),
        (r"typing\.Coroutine\[Any, Any, (.*)\]$", r"\1"),
        (r"typing\.AsyncGenerator\[(.*), None\]$", r"typing.Generator[\1, None, None]"),
        (r"typing\.AsyncIterator\[", "typing.Iterator["),
        (r"pulse\.decorators\.Job", "pulse.blocking.client.SyncJob"),
        (r"pulse\.jobs\.handles\.JobHandle", "pulse.blocking.bridge.SyncJobHandle"),
        (r"pulse\.client\.Router", "pulse.blocking.client.SyncRouter"),
        (r"pulse\.schedules\.Schedules", "pulse.blocking.verbs.SyncSchedules"),
        (r"pulse\.workflows\.(Workflows?|WorkflowHandle)\b", r"pulse.blocking.verbs.Sync\1"),
    ):
        revealed = re.sub(pattern, replacement, revealed)
    homes = r"pulse\.(?:jobs\.selections|jobs\.submissions|schedule_definitions|topic_settings)\."
    return re.sub(rf"\*\*\w+: \*\*TypedDict\({homes}.*?, \{{(.*)\}}\)", unpacked, revealed)


def unpacked(keys: re.Match[str]) -> str:
    """Return the keys of a TypedDict as the keyword parameters that they stand for."""
    return re.sub(r"'(\w+)'\?: (.*?)(?=, '|$)", r"\1: \2 =", keys[1])


def parts(revealed: str) -> list[str]:
    """Return parameters and result, sorted: the order of keyword parameters means nothing."""
    return sorted(part for part in re.split(r"def \(|, |\) -> |\)$", revealed) if part != "*")


def mypy(directory: Path, program: str) -> str:
    """Return what `mypy --strict` prints about the program."""
    usage = directory / "usage.py"
    usage.write_text(program)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(usage)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    return checked.stdout + checked.stderr
