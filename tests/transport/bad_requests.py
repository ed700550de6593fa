"""A bad request, the field that its refusal names, and the status."""

from dataclasses import dataclass

import grpc
from google.protobuf.message import Message

INVALID = grpc.StatusCode.INVALID_ARGUMENT
MISSING = grpc.StatusCode.NOT_FOUND
UNKNOWN_ID = "0190f3a0-0000-7000-8000-00000000dead"
LONG = "x" * 256
HUGE = "x" * 200_000


@dataclass(frozen=True)
class Case:
    name: str
    request: Message
    field: str
    status: grpc.StatusCode = INVALID

    @property
    def method(self) -> str:
        return type(self.request).__name__.removesuffix("Request")
