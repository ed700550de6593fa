"""The filter of jobs: from the query of a URL to the filter of the SDK, and back."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

import pulse
from pulse_text import printable
from pulse_text.jobs import STATUS_NAMES, STATUS_WORDS
from pulse_text.times import iso, parse_past_moment
from pulse_ui import tuning, words

NAMES = ("topic", "status", "since", "before", "schedule", "error", "error_group", "metadata", "lane")
"""The names of the fields in URLs. Only metadata may repeat."""

_MOST_METADATA = 16
"""Conditions. A URL with more is too long for some proxies."""


@dataclass(frozen=True, slots=True)
class Chip:
    """One active condition, and the list without it."""

    name: str
    label: str
    value: str
    without: str


@dataclass(slots=True)
class JobQuery:
    """A filter: as typed, as the SDK takes it, and its invalid fields."""

    typed: dict[str, str] = field(default_factory=dict)
    metadata: list[str] = field(default_factory=list)
    """Each valid key=value."""
    which: pulse.JobFilter = field(default_factory=lambda: pulse.JobFilter())
    problems: dict[str, str] = field(default_factory=dict)
    """A sentence for each invalid field, whose value is ignored."""

    @property
    def status(self) -> pulse.JobStatus | None:
        status = self.which.get("status")
        return None if status is None else pulse.JobStatus(status)

    @property
    def is_any(self) -> bool:
        """True if there is no condition."""
        return not self.which

    @property
    def is_known_by_topic(self) -> bool:
        """True if it filters by topic and status only, so that the counts of topics apply."""
        return not self.which.keys() - {"topic", "status"}

    @property
    def is_rare(self) -> bool:
        """True if it uses a field that is folded away by default."""
        return not self.typed.keys().isdisjoint({"before", "schedule", "metadata", "lane"})

    def key(self, cursor: str | None = None) -> str:
        """A short key that identifies this list, or one page of it."""
        return f"{zlib.crc32(self.path(cursor=cursor or '').encode()):08x}"

    def pairs(self) -> list[tuple[str, str]]:
        """The filter as typed, for a URL or a form, without invalid fields."""
        pairs = [(name, text) for name, text in self.typed.items() if name not in self.problems]
        return pairs + [("metadata", entry) for entry in self.metadata]

    def path(self, **changes: str) -> str:
        """Return the URL of the list with some fields changed; "" removes one."""
        kept = [(name, value) for name, value in self.pairs() if name not in changes]
        return jobs_path([*kept, *((name, value) for name, value in changes.items() if value)])

    def chips(self, zone: ZoneInfo) -> list[Chip]:
        """The active conditions, each with the list without it."""
        # A status that was not typed was implied by the error group, and goes with it.
        chips = [
            Chip(name, label, value, self.path(**{name: ""}))
            for name, label, value in _conditions(self.which, zone)
            if name in self.typed
        ]
        for entry in self.metadata:
            others = [(name, text) for name, text in self.pairs() if (name, text) != ("metadata", entry)]
            chips.append(Chip("metadata", "Metadata", entry, jobs_path(others)))
        return chips


def jobs_path(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the URL of the list with this query."""
    query = urlencode(list(pairs))
    return f"/jobs?{query}" if query else "/jobs"


def read_filter(fields: Iterable[tuple[str, str]], *, now: datetime, zone: ZoneInfo) -> JobQuery:
    """Read the filter. An invalid value becomes a sentence and is ignored."""
    asked = JobQuery()
    for name, value in fields:
        text = value.strip()
        if name == "metadata" and text:
            _read_metadata(asked, text)
        elif name in NAMES and name != "metadata" and text:
            asked.typed[name] = text
    for name, text in asked.typed.items():
        try:
            _read(asked.which, name, text, now, zone)
        except ValueError as error:
            asked.problems[name] = str(error)
    _check_combination(asked)
    return asked


def past_moment(text: str, *, now: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment that `2h` or `2030-01-31 09:00` stands for. Raises ValueError with a sentence."""
    moment = parse_past_moment(text, present=now, zone=zone)
    if not tuning.FIRST_MOMENT <= moment <= tuning.LAST_MOMENT:
        raise ValueError(f"{text[:40]!r} is not within the years 1970 to 2200.")
    return moment


def fields_of(which: pulse.JobFilter) -> list[tuple[str, str]]:
    """Return the filter as form fields, with moments instead of durations, so that it stays the same."""
    names = {"schedule_id": "schedule", "error_contains": "error"}
    fields = []
    for name, value in which.items():
        if isinstance(value, Mapping):
            fields += [("metadata", f"{key}={text}") for key, text in value.items()]
        elif isinstance(value, datetime):
            fields.append((name, iso(value)))
        elif value is not None:
            fields.append((names.get(name, name), str(value)))
    return fields


def in_words(which: pulse.JobFilter, zone: ZoneInfo, *, number: int | None = None) -> str:
    """Return the filter in words: "1,204 dead-lettered jobs on email, submitted since …"."""
    status, topic = which.get("status"), which.get("topic")
    count = "" if number is None else words.count(number)
    # Without a status, pulsed counts and acts on unfinished jobs.
    kind = STATUS_WORDS[status] if status else "unfinished"
    noun = "job" if number == 1 else "jobs"
    parts = [" ".join(filter(None, [count, kind, noun, f"on {topic}" if topic else ""]))]
    shown = {name: value for name, _, value in _conditions(which, zone)}
    parts += [f"in the lane {shown['lane']}"] if "lane" in shown else []
    parts += [f"submitted since {shown['since']}"] if "since" in shown else []
    parts += [f"submitted before {shown['before']}"] if "before" in shown else []
    parts += [f"of the schedule {shown['schedule']}"] if "schedule" in shown else []
    parts += [f"with “{shown['error']}” in the error"] if "error" in shown else []
    parts += [f"of the error group {shown['error_group']}"] if "error_group" in shown else []
    metadata = which.get("metadata") or {}
    parts += [f"with {key}={value} in the metadata" for key, value in metadata.items()]
    return ", ".join(parts)


def _conditions(which: pulse.JobFilter, zone: ZoneInfo) -> list[tuple[str, str, str]]:
    """Return name, label and value of each condition except metadata."""
    found: list[tuple[str, str, str]] = []
    if topic := which.get("topic"):
        found.append(("topic", "Topic", topic))
    if lane := which.get("lane"):
        found.append(("lane", "Lane", printable.one_line(lane)))
    if status := which.get("status"):
        found.append(("status", "Status", STATUS_NAMES[status]))
    if since := which.get("since"):
        found.append(("since", "Since", words.stamp(since, zone)))
    if before := which.get("before"):
        found.append(("before", "Before", words.stamp(before, zone)))
    if schedule := which.get("schedule_id"):
        found.append(("schedule", "Schedule", schedule))
    if error := which.get("error_contains"):
        found.append(("error", "Error has", error))
    if group := which.get("error_group"):
        found.append(("error_group", "Error group", group))
    return found


def _read(which: pulse.JobFilter, name: str, text: str, now: datetime, zone: ZoneInfo) -> None:
    match name:
        case "topic":
            if not tuning.TOPIC.fullmatch(text):
                raise ValueError(
                    f"“{text[:40]}” is not a topic: use letters, digits and . _ - : / and start with "
                    "a letter or digit."
                )
            which["topic"] = text
        case "status":
            if text.upper() not in pulse.JobStatus.__members__:
                raise ValueError(f"“{text[:40]}” is not a status: choose one from the list.")
            which["status"] = pulse.JobStatus(text.upper())
        case "since":
            which["since"] = past_moment(text, now=now, zone=zone)
        case "before":
            which["before"] = past_moment(text, now=now, zone=zone)
        case "schedule":
            try:
                which["schedule_id"] = str(UUID(text))
            except ValueError:
                raise ValueError(
                    f"“{text[:40]}” is not the id of a schedule: copy it from its page."
                ) from None
        case "error":
            if len(text) > tuning.LONGEST_SEARCH or "\0" in text:
                raise ValueError(f"Too long: the limit is {tuning.LONGEST_SEARCH} characters.")
            which["error_contains"] = text
        case "lane":
            if len(text) > tuning.LONGEST_LANE or "\0" in text:
                raise ValueError(f"Too long: the limit is {tuning.LONGEST_LANE} characters.")
            which["lane"] = text
        case "error_group":
            if not tuning.ERROR_GROUP.fullmatch(text):
                raise ValueError(
                    f"“{text[:40]}” is not an error group: choose one on the page of dead letters."
                )
            which["error_group"] = text


def _read_metadata(asked: JobQuery, text: str) -> None:
    key, equals, value = (part.strip() for part in text.partition("="))
    found = dict(asked.which.get("metadata") or {})
    problem = ""
    if not equals or not key or "\0" in text:
        problem = f"“{text[:40]}” is not of the form key=value."
    elif found.get(key, value) != value:
        problem = f"{key[:40]} cannot be both {found[key][:40]} and {value[:40]}: remove one."
    elif len(found) >= _MOST_METADATA:
        problem = f"Too many entries: the limit is {_MOST_METADATA}."
    if problem:
        asked.problems["metadata"] = problem
        asked.typed["metadata"] = text
        return
    if key not in found:
        asked.metadata.append(f"{key}={value}")
    asked.which["metadata"] = found | {key: value}


def _check_combination(asked: JobQuery) -> None:
    which = asked.which
    since, before = which.get("since"), which.get("before")
    if since is not None and before is not None and before <= since:
        asked.problems["before"] = "Must be later than “since”."
        del which["before"]
    if "lane" in which and "topic" not in which:
        asked.problems["lane"] = "A lane belongs to a topic: enter the topic as well."
        del which["lane"]
    dead = pulse.JobStatus.DEAD_LETTERED
    if "error_group" in which and which.setdefault("status", dead) != dead:
        asked.problems["error_group"] = "An error group has dead letters only: choose the status Dead."
        del which["error_group"]
