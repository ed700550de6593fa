"""Every RPC that pulsed serves, read from the descriptors: one that is added is fuzzed from then on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from pulse.v1 import pulse_pb2


@dataclass(frozen=True)
class Rpc:
    """One method, and what it takes and answers."""

    method: MethodDescriptor

    @property
    def name(self) -> str:
        return str(self.method.name)

    @property
    def path(self) -> str:
        return f"/{self.method.containing_service.full_name}/{self.method.name}"

    @cached_property
    def request(self) -> type[Message]:
        return GetMessageClass(self.method.input_type)

    @cached_property
    def response(self) -> type[Message]:
        return GetMessageClass(self.method.output_type)

    @property
    def takes_stream(self) -> bool:
        return bool(self.method.client_streaming)

    @property
    def answers_stream(self) -> bool:
        return bool(self.method.server_streaming)

    @property
    def kind(self) -> str:
        return _KINDS[self.takes_stream, self.answers_stream]


_KINDS = {
    (False, False): "unary",
    (False, True): "server stream",
    (True, False): "client stream",
    (True, True): "both stream",
}

_SERVICES = [
    service
    for file in (pulse_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
    for service in file.services_by_name.values()
]
SERVICES = frozenset(str(service.full_name) for service in _SERVICES)
"""By their full names. A test compares them with those of a real server."""
RPCS: tuple[Rpc, ...] = tuple(Rpc(method) for service in _SERVICES for method in service.methods)
BY_PATH: dict[str, Rpc] = {rpc.path: rpc for rpc in RPCS}
PUBLIC = frozenset(path for path in BY_PATH if path.startswith("/grpc.health."))
"""Served without credentials by a server with users."""
