"""The policies of the fake pulsed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb


class FakePolicies:
    """Answers the declaration of policies as the test asks. Stores none."""

    def __init__(self) -> None:
        self.on_declare: Callable[[pb.DeclareTopicPoliciesRequest, Any], pb.DeclareTopicPoliciesResponse]
        self.on_declare = lambda request, context: pb.DeclareTopicPoliciesResponse()

    def DeclareTopicPolicies(  # noqa: N802
        self, request: pb.DeclareTopicPoliciesRequest, context: grpc.ServicerContext
    ) -> pb.DeclareTopicPoliciesResponse:
        with self._change(context):
            return self.on_declare(request, context)

    def _change(self, context: grpc.ServicerContext) -> AbstractContextManager[None]:
        raise NotImplementedError
