"""Judges an answer. Each complaint is a sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from faults.fuzzing.answers import Answer, Reaction
from faults.fuzzing.callers import GOOD
from faults.fuzzing.contract import BY_PATH, PUBLIC
from faults.fuzzing.inputs import Call
from pulse.v1 import pulse_pb2 as pb
from pulse_server.doors.callers import may_call

Code = grpc.StatusCode

# Never sent by the fuzzer, so an answer that contains them leaks internals.
_LEAKS = re.compile(
    r"Traceback|asyncpg|SELECT|UPDATE|INSERT|DELETE FROM|pulse\.(?:jobs|schedules)\b|relation \"|violates|"
    r"SQLSTATE|syntax error|constraint|line \d+|File \"|site-packages|object at 0x|Error\b|exception|NoneType"
)
_LONGEST = 1500
# The messages of gRPC itself, or their beginnings.
_GRPCS_OWN = (
    (Code.UNIMPLEMENTED, "Method not found!"),
    (Code.RESOURCE_EXHAUSTED, "SERVER: Received message larger than max"),
    (Code.RESOURCE_EXHAUSTED, "received metadata size exceeds"),
    (Code.RESOURCE_EXHAUSTED, "Decompressed message larger than max"),
)
# The answer of gRPC for Python where its own code, or ours outside the boundary, raised an exception.
_RAISED = "Unexpected <class"
# A path that is not UTF-8, which only a bare connection can send: it is raised before pulsed gets the call.
_PATH_NOT_UTF8 = "Unexpected <class 'UnicodeDecodeError'>: 'utf-8' codec can't decode byte"
# Refusals that mean: later. Any other UNAVAILABLE would be the database's, which has no fault here.
_LATER = re.compile("kept changing while|was removed while|more passwords to check|stream was ended")
_REFUSALS = {
    Code.INVALID_ARGUMENT,
    Code.NOT_FOUND,
    Code.ALREADY_EXISTS,
    Code.FAILED_PRECONDITION,
    Code.RESOURCE_EXHAUSTED,
    Code.UNIMPLEMENTED,
    Code.UNAUTHENTICATED,
    Code.PERMISSION_DENIED,
    Code.UNAVAILABLE,
}
_CODES = {code.value[0]: code for code in Code}


def complaints(call: Call, answer: Answer, *, guarded: bool) -> list[str]:
    """Return what is wrong with the answer. `guarded`: the server has users, and authenticates callers."""
    found = list(_about_status(answer.code, answer.details))
    found += _about_place(call, answer)
    if guarded:
        found += _about_door(call, answer)
    if call.path in BY_PATH:
        found += _about_messages(call, answer)
    return found


def complaints_about_wire(reaction: Reaction) -> list[str]:
    """Return what is wrong with the answers to a bare connection, if any: mostly it is just closed.

    gRPC's core refuses violations of HTTP/2 with statuses and messages of its own.
    """
    found = list(_about_leaks(reaction.data.decode("latin-1")))
    for answer in reaction.answers:
        if answer.is_pulseds_own:
            found += _about_status(answer.code, answer.details)
        elif answer.details.startswith(_RAISED) and not answer.details.startswith(_PATH_NOT_UTF8):
            found.append(f"it made the server raise: {answer.details!r}")
    return found


def _about_status(code: Code | None, details: str) -> Iterator[str]:
    if code in (None, Code.OK):
        return
    if code not in _REFUSALS:
        yield f"it ended with {code.name}: {details!r}"
    if code is Code.UNAVAILABLE and not _LATER.search(details):
        yield f"it was asked to try again, though the database had no fault: {details!r}"
    yield from _about_leaks(details)
    if not any(code is own and details.startswith(text) for own, text in _GRPCS_OWN):
        yield from _about_sentence(details)


def _about_sentence(text: str) -> Iterator[str]:
    if not text.endswith((".", "…")) or text.count(" ") < 2:
        yield f"its message is no sentence: {text!r}"
    if len(text) > _LONGEST:
        yield f"its message has {len(text)} characters: {text[:200]!r}…"


def _about_leaks(text: str) -> Iterator[str]:
    if leaked := _LEAKS.search(text):
        yield f"its message leaks {leaked[0]!r}: {text[:500]!r}"


def _about_place(call: Call, answer: Answer) -> Iterator[str]:
    is_there = call.path in BY_PATH
    if answer.code is Code.OK and not is_there:
        yield "it was served by a method that does not exist"
    if answer.code is Code.UNIMPLEMENTED and is_there:
        yield "it was refused because the method does not exist"


def _about_door(call: Call, answer: Answer) -> Iterator[str]:
    if call.path in PUBLIC or call.hangs_up:
        return
    role = GOOD.get(call.metadata)
    is_in = answer.code is Code.OK or bool(answer.messages)
    if role is None and is_in:
        yield "it was let in without credentials"
    if role is not None and is_in and not may_call(role, call.path):
        yield f"it was let in as {role}"
    if role is not None and answer.code is Code.UNAUTHENTICATED:
        yield f"{role} was not known, though the credentials were right"


def _about_messages(call: Call, answer: Answer) -> Iterator[str]:
    rpc = BY_PATH[call.path]
    read: list[Any] = []
    for encoded in answer.messages:
        try:
            read.append(rpc.response.FromString(encoded))
        except DecodeError:
            yield f"the answer is no {rpc.response.DESCRIPTOR.name}: {encoded[:100].hex()}"
    for message in read:
        for refusal in _refusals_in(message):
            yield from _about_status(_CODES.get(refusal.code, Code.UNKNOWN), refusal.message)
    if answer.code is Code.OK and not rpc.answers_stream and len(read) != 1:
        yield f"it ended well, with {len(read)} answers"
    if answer.code is Code.OK and rpc.name in ("StreamSubmits", "StreamReports"):
        asked = Counter(rpc.request.FromString(encoded).number for encoded in call.messages)  # type: ignore[attr-defined]
        if asked != Counter(message.number for message in read):
            yield f"the line was asked {dict(asked)} and answered {[message.number for message in read]}"


def _refusals_in(message: Message) -> Iterator[pb.Refusal]:
    if isinstance(message, pb.Refusal):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.file.package != "pulse.v1":
            continue
        if isinstance(value, Message):
            yield from _refusals_in(value)
        elif not field.message_type.GetOptions().map_entry:
            for inner in value:
                yield from _refusals_in(inner)
