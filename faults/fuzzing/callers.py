"""The metadata of calls: credentials, headers without a meaning here, and paths of no method."""

from __future__ import annotations

import base64

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from faults.fuzzing.inputs import Metadata
from pulse_server.access.users import Role
from tests.transport.authorized import basic


def _password(role: Role) -> str:
    return f"{role.value}-4711"


USERS_FILE = "".join(f"{role.value}:{_password(role)}:{role.value}\n" for role in Role)
"""One user per role, named after it."""


def credentials_of(role: Role) -> tuple[tuple[str, str], ...]:
    """The valid credentials of the user of this role."""
    return basic(role.value, _password(role))


GOOD: dict[Metadata, Role] = {credentials_of(role): role for role in Role}


def _header(text: str | bytes) -> Metadata:
    return (("authorization", text if isinstance(text, str) else text.decode("latin-1")),)


def _basic(raw: bytes) -> Metadata:
    return _header(b"Basic " + base64.b64encode(raw))


_WRONG = (
    (),
    _header(""),
    _header("Basic"),
    _header("Basic "),
    _header("Basic ====" * 3),
    _header("Basic YWRtaW4="),  # no colon
    _header("basic !!!"),
    _header("Bearer abc"),
    _header("Digest username=admin"),
    _header("x" * 9_000),
    credentials_of(Role.ADMIN) * 2,  # which one counts?
    _basic(b":"),
    _basic(b"admin:"),
    _basic(b":admin-4711"),
    _basic(b"admin:admin-4712"),
    _basic(b"admin:admin-4711\0"),
    _basic(b"ADMIN:admin-4711"),
    _basic(b"viewer:admin-4711"),
    _basic(b"\xff\xfe:\xff"),
    _basic(b"admin\0:admin-4711"),
    _basic(b"admin:" + b"p" * 6_000),
    _basic(b"n" * 6_000 + b":p"),
    _basic(b"'; DROP TABLE users; --:x"),
)
wrong_credentials: SearchStrategy[Metadata] = st.one_of(
    st.sampled_from(_WRONG),
    st.binary(max_size=40).map(lambda raw: _basic(b"admin:" + raw)),
    st.binary(max_size=40).map(_basic),
)
"""None of them is valid."""

_PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=60)
odd_metadata: SearchStrategy[Metadata] = st.one_of(
    st.just(()),
    st.tuples(
        st.tuples(
            st.sampled_from(("x", "traceparent", "authorization", "user-agent", "pulse-answer")), _PRINTABLE
        )
    ),
    st.tuples(st.tuples(st.just("x-bin"), st.binary(max_size=60))),
    st.sampled_from(
        (
            (("x", "y" * 14_000),),
            (("x", "y" * 17_000),),  # larger than the server accepts
            tuple((f"x-{number}", "y") for number in range(200)),
        )
    ),
)
"""Headers that a client may send and that mean nothing here."""

_NAMES = (
    "/pulse.v1.PulseService/DropJobs",
    "/pulse.v1.PulseService/submitjob",
    "/pulse.v1.PulseService/",
    "/pulse.v1.PulseService",
    "/pulse.v1.PulseService/SubmitJob/",
    "/pulse.v1.PulseService/SubmitJob?x=1",
    "//SubmitJob",
    "/pulse.v2.PulseService/SubmitJob",
    "/pulse.v1.PulseServic%65/SubmitJob",
    "/grpc.health.v1.Health/check",
    "/grpc.channelz.v1.Channelz/GetServers",
    "/x",
    "/" + "x" * 9_000,
)
wrong_names: SearchStrategy[str] = st.one_of(
    st.sampled_from(_NAMES),
    st.text("abcXYZ./_-%0", min_size=1, max_size=30).map(lambda name: f"/pulse.v1.PulseService/{name}?"),
)
"""Paths that name no method."""
