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
    def store(**fields: Any) -> pb.StoreStepRequest:
        usual: dict[str, Any] = {"worker_id": "w1", "claim": CLAIM, "name": "fetch", "value": b"1"}
        return pb.StoreStepRequest(**(usual | fields))

    yield Case("no worker_id", store(worker_id=""), "worker_id")
    yield Case("no claim", store(claim=None), "attempt")
    yield Case("no attempt", store(claim=pb.Claim(job_id=UNKNOWN_ID)), "attempt")
    yield Case("malformed id", store(claim=pb.Claim(job_id="42", attempt=1)), "job_id")
    yield Case("no name", store(name=""), "name")
    yield Case("long name", store(name=LONG), "name")
    yield Case("NUL in the name", store(name="a\0"), "name")
    yield Case("negative time", store(ran=Duration(seconds=-1)), "ran")
    yield Case("impossible time", store(ran=Duration(seconds=10**13)), "ran")
    yield Case("unknown job", store(), UNKNOWN_ID, MISSING)


def _bad_takes() -> Iterator[Case]:
    def take(**fields: Any) -> pb.TakeSignalRequest:
        usual: dict[str, Any] = {"worker_id": "w1", "claim": CLAIM, "step": "go", "signal": "go"}
        return pb.TakeSignalRequest(**(usual | fields))

    yield Case("no worker_id", take(worker_id=""), "worker_id")
    yield Case("no attempt", take(claim=pb.Claim(job_id=UNKNOWN_ID)), "attempt")
    yield Case("no step", take(step=""), "step")
    yield Case("no signal", take(signal=""), "signal")
    yield Case("long signal", take(signal=LONG), "signal")
    yield Case("unknown job", take(), UNKNOWN_ID, MISSING)


def _bad_signals() -> Iterator[Case]:
    def signal(**fields: Any) -> pb.SignalJobRequest:
        usual: dict[str, Any] = {"job_id": UNKNOWN_ID, "name": "go", "signal_id": UNKNOWN_ID}
        return pb.SignalJobRequest(**(usual | fields))

    yield Case("no id", signal(job_id=""), "job_id")
    yield Case("malformed id", signal(job_id="42"), "job_id")
    yield Case("no name", signal(name=""), "name")
    yield Case("NUL in the name", signal(name="a\0"), "name")
    yield Case("no signal_id", signal(signal_id=""), "signal_id")
    yield Case("malformed signal_id", signal(signal_id="42"), "signal_id")
    yield Case("large value", signal(value=b"x" * (2**20 + 1)), "value")
    yield Case("unknown job", signal(), UNKNOWN_ID, MISSING)
