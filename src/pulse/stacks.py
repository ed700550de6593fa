"""Where a handler is: the stack of a task or a thread that does not end."""

from __future__ import annotations

import asyncio
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from pulse import tuning

_SDK = str(Path(__file__).parent)


def stack_of_task(task: asyncio.Task[Any]) -> str:
    """Return the stack of a task that waits as text, without the frames of the SDK."""
    return _text(_frames_of_task(task))


def stack_of_thread(thread_id: int) -> str:
    """Return the stack of a thread as text, without the frames of the SDK."""
    frames: list[FrameType] = []
    frame = sys._current_frames().get(thread_id)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return _text(frames[::-1])


def _frames_of_task(task: asyncio.Task[Any]) -> list[FrameType]:
    """Return the frames of the coroutines that wait for each other. Task.get_stack() knows the first only."""
    frames: list[FrameType] = []
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            break
        frames.append(frame)
        # The coroutine of the handler is a variable of the runner's step.
        waiting = (
            getattr(waiting, "cr_await", None)
            or frame.f_locals.get("coroutine")
            or getattr(waiting, "gi_yieldfrom", None)
        )
    return frames


def _text(frames: list[FrameType]) -> str:
    is_ours = [frame.f_code.co_filename.startswith(_SDK) for frame in frames]
    # Before the first frame of the SDK is what started it: the thread, or the event loop.
    begin = is_ours.index(True) if True in is_ours else 0
    theirs = [
        traceback.FrameSummary(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        for frame, ours in zip(frames[begin:], is_ours[begin:], strict=True)
        if not ours
    ]
    return "".join(traceback.format_list(theirs[-tuning.STACK_FRAMES :])).rstrip()
