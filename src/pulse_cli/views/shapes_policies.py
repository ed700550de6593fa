"""The shapes of JSON output for the policies of topics."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulse_cli.views.shapes import Shape, time_shape
from pulse_text.backoffs import format_backoff
from pulse_text.times import format_exact

if TYPE_CHECKING:
    import pulse


def policy_shape(policy: pulse.TopicPolicy) -> Shape:
    """How long finished jobs are kept: durations, "forever", or "default" for the server's setting."""
    return {
        "topic": policy.topic or None,
        "keep_completed": _kept(policy.keep_completed),
        "keep_canceled": _kept(policy.keep_canceled),
        "keep_dead_lettered": _kept(policy.keep_dead_lettered),
        "set_by": policy.set_by or None,
        "set_at": time_shape(policy.set_at),
    }


def run_policy_shape(policy: pulse.TopicPolicy) -> Shape:
    """How jobs run: the values in force, set by operators, and declared by the code of a worker."""
    return {
        "topic": policy.topic or None,
        "effective": _run_entries(policy.effective),
        "operator": _run_entries(policy.run),
        "set_by": policy.set_by or None,
        "set_at": time_shape(policy.set_at),
        "declared": _run_entries(policy.declared),
        "declared_by": policy.declared_by or None,
        "declared_at": time_shape(policy.declared_at),
    }


def _run_entries(run: pulse.RunPolicy) -> Shape:
    return {
        "max_attempts": run.max_attempts,
        "backoff": None if run.backoff is None else format_backoff(run.backoff),
        "timeout": None if run.timeout is None else format_exact(run.timeout),
        "max_crashes": run.max_crashes,
    }


def _kept(keep: timedelta | str) -> str:
    return keep if isinstance(keep, str) else format_exact(keep)
