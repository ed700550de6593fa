"""The settings of topics of the fake pulsed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb


class FakeTopics:
    """Answers the declaration of settings as the test asks. Stores none."""

    def __init__(self) -> None:
        self.on_declare: Callable[[pb.DeclareTopicsRequest, Any], pb.DeclareTopicsResponse]
        self.on_declare = lambda request, context: pb.DeclareTopicsResponse()

    def DeclareTopics(  # noqa: N802
        self, request: pb.DeclareTopicsRequest, context: grpc.ServicerContext
    ) -> pb.DeclareTopicsResponse:
        with self._change(context):
            return self.on_declare(request, context)

    def _change(self, context: grpc.ServicerContext) -> AbstractContextManager[None]:
        raise NotImplementedError
