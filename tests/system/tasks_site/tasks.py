"""Tasks of Django: none of them names pulse, except for its options."""

from datetime import timedelta
from typing import Any

import pulse
from pulse.django.tasks_backend import base, task

plain_task = base.task
"""The decorator of Django itself."""


@plain_task()
def add(first: int, second: int = 0) -> int:
    return first + second


@plain_task(queue_name="mail", priority=7)
async def send(to: str) -> list[str]:
    return ["sent", to]


@plain_task(takes_context=True)
def identify(context: Any, **kwargs: Any) -> list[Any]:
    result = context.task_result
    return [
        result.id,
        context.attempt,
        result.args,
        result.kwargs,
        str(result.status),
        len(result.worker_ids),
    ]


class Declined(Exception):
    """An error of the project."""


@plain_task
def decline(card: str) -> None:
    raise Declined(f"{card} was declined")


@plain_task
def leave() -> None:
    raise SystemExit("this task leaves")


@plain_task
def return_function() -> Any:
    return lambda: True


@task(max_attempts=2, retry=lambda attempt, error: timedelta(0))
def fail_once(*, fails: int = 1) -> int:
    attempt = pulse.current().attempt
    if attempt <= fails:
        raise Declined(f"attempt {attempt}")
    return attempt


@task(max_attempts=5, discard_on=Declined)
async def discard() -> None:
    raise Declined("for good")


@task(process=True, timeout=timedelta(minutes=1))
def add_elsewhere(first: int, second: int) -> int:
    return first + second
