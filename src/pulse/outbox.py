"""Enqueue in a transaction of another database than that of pulsed: the job is stored in the outbox there.

    with transaction.atomic():                                   # Django
        order = Order.objects.create(total=90)
        pulse.outbox.enqueue(connection, send_receipt, order.id)

`pulse outbox install` creates the outbox, and `pulse outbox relay` submits its jobs after the commit. The
verbs have the parameters of `pulse.sql`. docs/figures.md#the-outbox-relay
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pulse.sql import AnyJob, enqueue_in, enqueue_many_in

__all__ = ["enqueue", "enqueue_many"]

SCHEMA = "pulse_outbox"


def enqueue(connection: Any, job: AnyJob | str, /, *args: Any, strict: bool = False, **kwargs: Any) -> Any:
    """Store a job in the outbox, as `pulse.sql.enqueue` does in pulsed.

    `duplicate` of the handle is not set: whether the key is known turns out when a relay submits the job.
    """
    return enqueue_in(SCHEMA, connection, job, args, kwargs, strict=strict)


def enqueue_many(
    connection: Any, job: AnyJob | str, items: Iterable[object], /, *, strict: bool = False, **options: Any
) -> Any:
    """Store a job for each item in the outbox, as `pulse.sql.enqueue_many` does in pulsed."""
    return enqueue_many_in(SCHEMA, connection, job, items, options, strict=strict)
