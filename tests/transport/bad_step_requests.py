"""Bad requests about steps and signals."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.bad_requests import LONG, MISSING, UNKNOWN_ID, Case

CLAIM = pb.Claim(job_id=UNKNOWN_ID, attempt=1)


def bad_step_requests() -> Iterator[Case]:
    yield from _bad_steps()
    yield from _bad_takes()
    yield from _bad_signals()
    yield Case("empty id", pb.ListStepsRequest(), "job_id")
    yield Case("malformed id", pb.ListStepsRequest(job_id="42"), "job_id")
    yield Case("unknown id", pb.ListStepsRequest(job_id=UNKNOWN_ID), UNKNOWN_ID, MISSING)


def _bad_steps() -> Iterator[Case]:
    yield Case("no worker_id", pb.StoreStepsRequest(steps=[bad_step()]), "worker_id")
    many = pb.StoreStepsRequest(worker_id="w1", steps=[bad_step()] * 10_001)
    yield Case("too many steps", many, "steps")


def bad_step(**fields: Any) -> pb.NewStep:
    """Return a step of an unknown job."""
    return pb.NewStep(**({"claim": CLAIM, "name": "fetch", "value": b"1"} | fields))


# Of a call that stores several, each is refused alone: its name, and the field that the refusal names.
BAD_STEPS = {
    "no claim": (bad_step(claim=None), "attempt"),
    "no attempt": (bad_step(claim=pb.Claim(job_id=UNKNOWN_ID)), "attempt"),
    "malformed id": (bad_step(claim=pb.Claim(job_id="42", attempt=1)), "job_id"),
    "no name": (bad_step(name=""), "name"),
    "long name": (bad_step(name=LONG), "name"),
    "NUL in the name": (bad_step(name="a\0"), "name"),
    "negative time": (bad_step(ran=Duration(seconds=-1)), "ran"),
    "impossible time": (bad_step(ran=Duration(seconds=10**13)), "ran"),
    "unknown job": (bad_step(), UNKNOWN_ID),
}


def _bad_takes() -> Iterator[Case]:
    def take(**fields: Any) -> pb.TakeSignalRequest:
        usual: dict[str, Any] = {"worker_id": "w1", "claim": CLAIM, "step": "go", "signal": "go"}
        return pb.TakeSignalRequest(**(usual | fields))

    yield Case("no worker_id", take(worker_id=""), "worker_id")
    yield Case("no attempt", take(claim=pb.Claim(job_id=UNKNOWN_ID)), "attempt")
    yield Case("no step", take(step=""), "step")
    yield Case("no signal", take(signal=""), "signal")
    yield Case("long signal", take(signal=LONG), "signal")
    yield Case("empty name among signals", take(signal="go\n"), "signal")
    yield Case("many signals", take(signal="\n".join(["go"] * 21)), "signal")
    yield Case("unknown job", take(), UNKNOWN_ID, MISSING)


def _bad_signals() -> Iterator[Case]:
    def signal(**fields: Any) -> pb.SignalJobRequest:
        usual: dict[str, Any] = {"job_id": UNKNOWN_ID, "name": "go", "signal_id": UNKNOWN_ID}
        return pb.SignalJobRequest(**(usual | fields))

    yield Case("no id", signal(job_id=""), "job_id")
    yield Case("malformed id", signal(job_id="42"), "job_id")
    yield Case("no name", signal(name=""), "name")
    yield Case("NUL in the name", signal(name="a\0"), "name")
    yield Case("line break in the name", signal(name="a\nb"), "name")
    yield Case("no signal_id", signal(signal_id=""), "signal_id")
    yield Case("malformed signal_id", signal(signal_id="42"), "signal_id")
    yield Case("large value", signal(value=b"x" * (2**20 + 1)), "value")
    yield Case("unknown job", signal(), UNKNOWN_ID, MISSING)
