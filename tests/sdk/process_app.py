"""An application whose handlers run in processes of their own. Started by the tests as a script."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable
from datetime import timedelta
from pathlib import Path

import pulse

p = pulse.Pulse(os.environ["ADDRESS"], concurrency=3, drain_timeout=timedelta(milliseconds=1))
SHORT = timedelta(milliseconds=200)
LIMIT_OF_STEPS = timedelta(seconds=2)  # the first of them is stored within it
loops: list[asyncio.AbstractEventLoop] = []


@p.resource
async def opener() -> AsyncIterator[str]:
    loops.append(asyncio.get_running_loop())
    logging.getLogger("shop").warning("opened in %d", os.getpid())
    yield f"opened in {os.getpid()}"
    print(f"closed in {os.getpid()}")


@p.middleware
async def around(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    if call.context.topic in ("around", "around-async"):
        file, text = call.arguments["file"], f"{os.getpid()} {call.context.state['opener']}"
        Path(file).write_text(text)  # noqa: ASYNC240 — a sync handler has no event loop for a thread
    await call_next()


@p.job("around", process=True)
def in_middleware(file: str) -> None: ...


@p.job("around-async", process=True)
async def in_middleware_async(file: str) -> None: ...


@p.job("facts", process=True)
def facts(ctx: pulse.Context, number: int, file: str) -> None:
    facts = [number, ctx.attempt, ctx.metadata.get("who"), pulse.current() is ctx, os.getpid(), os.getppid()]
    Path(file).write_text(" ".join(map(str, facts)))
    print("printed by the handler")


@p.job("steps", process=True)
def steps(ctx: pulse.SyncContext, parts: int) -> None:
    assert [ctx.step("part", int, part, index=part) for part in range(parts)] == [*range(parts)]


@p.job("steps-async", process=True)
async def steps_async(ctx: pulse.Context, parts: int) -> None:
    made = await asyncio.gather(*(ctx.step("part", int, part, index=part) for part in range(parts)))
    assert made == [*range(parts)]


@p.job("waits", process=True)
def waits(ctx: pulse.SyncContext) -> None:
    ctx.step("first", int)
    ctx.sleep(SHORT)


@p.job("waits-for-any", process=True)
def waits_for_any(ctx: pulse.SyncContext) -> None:
    assert ctx.wait_for_any("approved", "rejected", returns=str) == ("rejected", "too late")


@p.job("enqueues", process=True)
def enqueues(number: int) -> None:
    for at in range(number):
        p.enqueue("other", {"number": at})  # type: ignore[unused-coroutine]


@p.job("step-too-long", process=True, timeout=LIMIT_OF_STEPS)
def step_too_long(ctx: pulse.SyncContext) -> None:
    ctx.step("first", int)
    ctx.step("second", lambda: time.sleep(60))


@p.job("adds", process=True)
def adds(ctx: pulse.SyncContext) -> None:
    total = sum(parent.result for parent in ctx.parents)
    ctx.workflow.add("other", {"total": total + ctx.parents["one"].result}, before="last")


@p.job("progress", process=True)
def progress(ctx: pulse.Context) -> None:
    for number in range(1000):
        ctx.progress(number / 1000, f"{number} of 1000", cursor=[ctx.cursor, number])
    raise ValueError("stopped half-way")


@p.job("progress-until-killed", process=True)
def progress_until_killed(ctx: pulse.Context) -> None:
    ctx.progress(0.5, cursor="half")
    time.sleep(60)


@p.job("logs", process=True)
def logs() -> None:
    logging.getLogger("shop").warning("logged by the handler")


@p.job("async", process=True)
async def handle_async(file: str) -> None:
    await asyncio.sleep(0)
    await asyncio.to_thread(Path(file).write_text, str(os.getpid()))


@p.job("enqueue", process=True)
def enqueue(topic: str) -> None:
    p.enqueue(topic)


@p.job("enqueue-async", process=True)
async def enqueue_async(topic: str) -> None:
    await p.enqueue(topic)


@p.job("fail-async", process=True)
async def fail_async() -> None:
    await asyncio.sleep(0)
    sys.exit(5)


@p.job("cancels-itself", process=True)
async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@p.job("stops-loop", process=True)
async def stop_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.Event().wait()


@p.job("exits-in-callback", process=True)
async def exit_in_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 6)
    await asyncio.Event().wait()


@p.job("closes-output", process=True)
def close_output() -> None:
    sys.stdout.close()


@p.job("fail", process=True)
def fail(kind: str) -> None:
    match kind:
        case "value":
            raise ValueError("a bad value")
        case "discard":
            raise pulse.Discard("of no use")
        case "retry":
            raise pulse.Retry(timedelta(seconds=7))
        case "snooze":
            raise pulse.Snooze(timedelta(seconds=9))
        case "exit":
            sys.exit(3)
        case "gone":
            os._exit(4)
        case "segfault":
            ctypes.string_at(0)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "gone before its child":
            if os.fork() == 0:
                time.sleep(3600)
            os._exit(4)
        case "fork":
            if os.fork():
                raise ValueError("the parent")


@p.job("hang", process=True, timeout=SHORT)
def hang(kind: str, file: str = "") -> None:
    if kind == "python":
        while True:
            pass
    if kind == "c":
        ctypes.CDLL(None).sleep(3600)
    if kind == "stubborn":
        while True:
            try:
                time.sleep(0.01)
            except BaseException:
                continue
    if kind == "with child":
        child = os.fork()
        if child == 0:
            time.sleep(3600)
        Path(file).write_text(str(child))
        ctypes.CDLL(None).sleep(3600)


@p.job("hang-async", process=True, timeout=SHORT)
async def hang_async() -> None:
    await asyncio.Event().wait()


@p.job("returns", process=True)
def return_long(length: int) -> str:
    return "x" * length


@p.job("starts-late", process=True)
def start_late(ctx: pulse.Context, file: str) -> Awaitable[object]:
    def block() -> None:
        while sys._current_frames()[main].f_code.co_name != "wait":  # for the task of the awaitable
            time.sleep(0.01)
        Path(file).touch()
        while not ctx.cancelled:
            time.sleep(0.01)

    main = threading.get_ident()
    loops[0].call_soon_threadsafe(block)
    return asyncio.Event().wait()


@p.job("wait", process=True)
def wait(file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    while True:
        time.sleep(0.01)


@p.job("wait-with-child", process=True)
def wait_with_child(file: str) -> None:
    child = subprocess.Popen(["sleep", "3600"])
    Path(file).write_text(f"{os.getpid()} {child.pid} .")
    ctypes.PyDLL(None).sleep(3600)  # holds the interpreter's lock


if __name__ == "__main__":
    from pulse import tuning

    # A busy machine needs its time to run a handler that is interrupted, and to end a process that is killed.
    tuning.TIME_LIMIT_GRACE_SECONDS = 2.0
    asyncio.run(p.run())
