"""Strings for the fields of requests: plausible ones, and ones that the server must refuse."""

from __future__ import annotations

import base64

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from faults.fuzzing.acquaintances import TOPICS, WORKERS, Acquaintances
from pulse_server.jobs.rules import JobStatus

_CRONS = ("* * * * *", "0 9 * * 1-5", "@daily", "*/15 0-3,23 L 2 5L", "0 0 29 2 */7", "1 1 1 1 MON#2")
_ZONES = (
    "",
    "",
    "",
    "",
    "",
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
)
_SERVICES = ("", "pulse.v1.PulseService", "grpc.health.v1.Health")
_FILES = ("pulse/v1/pulse.proto", "google/protobuf/timestamp.proto")
_SYMBOLS = ("pulse.v1.PulseService", "pulse.v1.JobView", "google.protobuf.Timestamp")

_ODD = (
    "",
    " ",
    "\0",
    "a\0b",
    "x" * 255,
    "x" * 256,
    "x" * 70_000,
    "\n",
    "mail\n",
    "\r\n\t\v\f\x1b[31m",
    "\x7f\x80\x9f\u2028\u2029",
    "é" * 200,
    "\U0001f600" * 100,
    "\U0010ffff\ufdd0\ufffe\ufffd",
    "\u202e\u200f\u200b\ufeff",
    "e\u0301" * 130,
    "²³४٣Ⅷ",
    "ıİſKßﬆ",
    "'; DROP TABLE jobs; --",
    '" OR 1=1 --',
    "$1 %s %(x)s {0} {x} ${y} \\",
    "%00%ff%2e%2e/",
    "../../etc/passwd",
    "/",
    "-mail",
    "NULL",
    "None",
    "NaN",
    "-0",
    "9" * 40,
    "0x10",
    "1e400",
    "{}",
    '{"a": [' + "[" * 50,
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "{0190f3a0-0000-7000-8000-00000000dead}",
    "urn:uuid:0190f3a0-0000-7000-8000-00000000dead",
    "0190F3A0-0000-7000-8000-00000000DEAD",
    "0190f3a0_0000_7000_8000_00000000dead"[:32],
    "٠١٩٠0000000070008000000000000000",
)
# Nothing that a surrogate could be made of: such a string has no bytes, and raw bytes are another kind.
_ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_CRON_FIELD = st.text("0123456789*/-,#LW?SUNJAF", min_size=1, max_size=6)
_ODD_CRON = st.one_of(
    st.lists(_CRON_FIELD, min_size=5, max_size=5).map(" ".join),
    st.lists(_CRON_FIELD, min_size=1, max_size=7).map(" ".join),
    st.sampled_from(("@reboot", "@", "@DAILY", "@wee\u212aly", "0 0 30 2 *", "0 0 31 4,6 1#5", "* " * 400)),
    st.sampled_from(("*,", "1-", "60 * * * *", "*/0 * * * *", "*/99999999 * * * *", "5-1 * * * *")),
)
_ODD_ZONE = st.sampled_from(
    (
        *("localtime", "Mars/Base", "America", "America/", "/etc/localtime", "../UTC", "UTC/", "utc"),
        *("EST5EDT", "zone.tab", "tzdata.zi", "a.b/c", "Europe/Paris\0", "posix/UTC", "Z" * 300),
        *(".", "..", "é/ü", "__init__.py"),
    )
)


def _token(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode()


_MOMENTS = ("2026-01-01T00:00:00+00:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z", "")
_IDS = ("0190f3a0-0000-7000-8000-00000000dead", "42", "")
_ODD_TOKEN = st.one_of(
    st.sampled_from(("garbage", "%%%", "ä", "====", "A", "AA", _token(b"\xff\xfe|"))),
    st.builds(
        lambda moment, job_id: _token(f"{moment}|{job_id}".encode()),
        st.sampled_from(_MOMENTS),
        st.sampled_from(_IDS),
    ),
    st.binary(max_size=60).map(_token),
)

_BY_NAME: dict[str, SearchStrategy[str]] = {
    "cron": _ODD_CRON,
    "time_zone": _ODD_ZONE,
    "page_token": _ODD_TOKEN,
}


class Texts:
    """Draws by the name of the field. A field with an unknown name gets a mixture."""

    def __init__(self, known: Acquaintances) -> None:
        def pick(name: str) -> SearchStrategy[str]:
            # By a number, which is drawn from the same range each time, however many there are by now.
            return st.integers(0, 255).map(lambda n: (pool := getattr(known, name))[n % len(pool)])

        jobs, schedules = pick("jobs"), pick("schedules")
        some = st.text("abcdefghij -", min_size=1, max_size=12)
        self._plausible: dict[str, SearchStrategy[str]] = {
            "job_id": jobs,
            "job_ids": jobs,
            "prefix": jobs.map(lambda job_id: job_id[:11]),
            "schedule_id": schedules,
            "topic": st.sampled_from(TOPICS),
            "topics": st.sampled_from(TOPICS),
            "worker_id": st.sampled_from(WORKERS),
            "run_id": st.sampled_from(("", "r1", "r2")),
            "status": st.sampled_from(tuple(JobStatus)).map(str),
            "cron": st.sampled_from(_CRONS),
            "time_zone": st.sampled_from(_ZONES),
            "catch_up": st.sampled_from(("", "one", "skip", "all")),
            "page_token": pick("tokens"),
            "error_group": pick("error_groups"),
            "idempotency_key": pick("keys"),
            "name": pick("names"),
            "service": st.sampled_from(_SERVICES),
            "file_by_filename": st.sampled_from(_FILES),
            "file_containing_symbol": st.sampled_from(_SYMBOLS),
            "containing_type": st.sampled_from(_SYMBOLS),
            "all_extension_numbers_of_type": st.sampled_from(_SYMBOLS),
            "key": st.sampled_from(("k", "traceparent", "tenant", "é")),
            "value": st.sampled_from(("v", "k", "")),
            "error_contains": some,
            "error": some,
            "reason": some,
        }
        self._any = st.one_of(some, jobs, schedules, st.sampled_from(TOPICS + WORKERS))

    def plausible(self, field: str) -> SearchStrategy[str]:
        return self._plausible.get(field, self._any)

    def odd(self, field: str) -> SearchStrategy[str]:
        alike = self.plausible(field).map(lambda text: f"{text}\0")
        odd = (st.sampled_from(_ODD), _ANY, alike)
        return st.one_of(*odd, _BY_NAME[field]) if field in _BY_NAME else st.one_of(*odd)
