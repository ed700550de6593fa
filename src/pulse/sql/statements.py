"""The statement that stores a job: a call of a function with the arguments that are given, by name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

import msgspec

from pulse.connections import Statement
from pulse.v1 import pulse_pb2 as pb

# The parameters of the functions, and what each value is cast to. Types that drivers disagree about are sent
# as text.
_TYPES = {
    "topic": "text",
    "payload": "bytea",
    "payloads": "bytea[]",
    "priority": "integer",
    "run_at": "timestamptz",
    "delay": "interval",
    "max_attempts": "integer",
    "start_within": "interval",
    "lane": "text",
    "key": "text",
    "metadata": "text::jsonb",
    "id": "text::uuid",
    "unique_key": "text",
    "unique_scope": "text",
    "on_conflict": "text",
    "period": "interval",
    "longest": "interval",
    "default_attempts": "integer",
    "keys": "text[]",
    "lanes": "text[]",
}


def arguments_of(request: pb.SubmitJobRequest) -> dict[str, Any]:
    """Return the arguments of the function by name. The rest have the defaults of the function."""
    arguments: dict[str, Any] = {
        "topic": request.topic,
        "payload": request.payload,
        "priority": request.priority,
        "key": request.idempotency_key,
        "id": request.job_id,
        "lane": request.lane,
        "metadata": msgspec.json.encode(dict(request.metadata)).decode() if request.metadata else None,
    }
    if request.HasField("run_at"):
        arguments["run_at"] = request.run_at.ToDatetime(tzinfo=UTC)
    if request.HasField("delay"):
        arguments["delay"] = request.delay.ToTimedelta()
    if request.HasField("start_within"):
        arguments["start_within"] = request.start_within.ToTimedelta()
    if request.HasField("max_attempts"):
        name = "default_attempts" if request.max_attempts_is_default else "max_attempts"
        arguments[name] = request.max_attempts
    if request.HasField("unique"):
        unique = request.unique
        arguments |= {
            "unique_key": unique.key,
            "unique_scope": unique.scope,
            "on_conflict": unique.on_conflict,
            "period": unique.period.ToTimedelta() if unique.HasField("period") else None,
            "longest": unique.longest.ToTimedelta() if unique.HasField("longest") else None,
        }
    needed = ("topic", "payload")
    return {name: value for name, value in arguments.items() if name in needed or value not in (None, "", 0)}


def call_of(function: str, arguments: Mapping[str, Any], verb: str, *, strict: bool) -> Statement:
    """Return the call of this function. It names only what is given, so that a newer function fits, too."""
    named = ", ".join(f"{name} => ${place}::{_TYPES[name]}" for place, name in enumerate(arguments, 1))
    columns = "stored::text[]" if "payloads" in arguments else "job_id::text, duplicate, replaced"
    text = f"SELECT {columns} FROM {function}({named}) AS stored"
    return Statement(text, list(arguments.values()), verb, needs_transaction=strict)
