"""Inputs that once got a bad answer, and what was wrong. Each test run sends them again.

A line of the fuzzer's report can be copied to here as it is.
"""

from __future__ import annotations

from faults.fuzzing.inputs import Call, Input

KNOWN: tuple[Input, ...] = (
    # UNKNOWN, and the name of a Python class: health and reflection read their requests outside the boundary.
    Call("/grpc.health.v1.Health/Check", messages=(bytes.fromhex("00"),)),
    Call("/grpc.health.v1.Health/Watch", messages=(bytes.fromhex("00"),)),
    Call(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        messages=(bytes.fromhex("00"),),
    ),
)
