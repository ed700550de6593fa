"""Which jobs: from the query of an address to the filter that pulsed takes, and back."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

import pulse
from pulse_text import statuses
from pulse_text.moments import iso, parse_past_moment
from pulse_ui.views import limits, words

NAMES = ("topic", "status", "since", "before", "schedule", "error", "error_group", "metadata")
"""The fields, as they are called in addresses. All but metadata once."""

_MOST_METADATA = 16
"""Of the conditions: an address with more of them is too long for some that pass it on."""


@dataclass(frozen=True, slots=True)
class Chip:
    """One condition that holds, and the list without it."""

    name: str
    label: str
    value: str
    without: str


@dataclass(slots=True)
class JobQuery:
    """What was asked for: as it was typed, as pulsed takes it, and what cannot be understood."""

    typed: dict[str, str] = field(default_factory=dict)
    metadata: list[str] = field(default_factory=list)
    """Each key=value that could be read."""
    which: pulse.JobFilter = field(default_factory=lambda: pulse.JobFilter())
    problems: dict[str, str] = field(default_factory=dict)
    """A sentence for each field whose value is not used."""

    @property
    def status(self) -> pulse.JobStatus | None:
        status = self.which.get("status")
        return None if status is None else pulse.JobStatus(status)

    @property
    def is_any(self) -> bool:
        """True if no condition holds."""
        return not self.which

    @property
    def is_known_by_topic(self) -> bool:
        """True if nothing but topic and status is asked for, so the numbers of the topics are about these."""
        return not self.which.keys() - {"topic", "status"}

    @property
    def is_rare(self) -> bool:
        """True if it uses what is asked for so rarely that it is folded away otherwise."""
        return not self.typed.keys().isdisjoint({"before", "schedule", "metadata"})

    def key(self, cursor: str | None = None) -> str:
        """A short name of this list, or of one page of it: another one has another."""
        return f"{zlib.crc32(self.path(cursor=cursor or '').encode()):08x}"

    def pairs(self) -> list[tuple[str, str]]:
        """The filter as it was typed, for an address or a form; what cannot be understood is left out."""
        pairs = [(name, text) for name, text in self.typed.items() if name not in self.problems]
        return pairs + [("metadata", entry) for entry in self.metadata]

    def path(self, **changes: str) -> str:
        """Return the address of the list with this filter, and with some fields changed; "" drops one."""
        kept = [(name, value) for name, value in self.pairs() if name not in changes]
        return jobs_path([*kept, *((name, value) for name, value in changes.items() if value)])

    def chips(self, zone: ZoneInfo) -> list[Chip]:
        """The conditions that hold, each with the list without it."""
        # A status that was not typed comes with the error group, and goes with it.
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
    """Return the address of the list with this query."""
    query = urlencode(list(pairs))
    return f"/jobs?{query}" if query else "/jobs"


def read_filter(fields: Iterable[tuple[str, str]], *, now: datetime, zone: ZoneInfo) -> JobQuery:
    """Read the filter. A value that cannot be understood becomes a sentence: it is not guessed, nor used."""
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
    _check_together(asked)
    return asked


def past_moment(text: str, *, now: datetime, zone: ZoneInfo) -> datetime:
    """Return the moment that `2h` or `2030-01-31 09:00` stands for. Raises ValueError with a sentence."""
    moment = parse_past_moment(text, present=now, zone=zone)
    if not limits.FIRST_MOMENT <= moment <= limits.LAST_MOMENT:
        raise ValueError(f"{text[:40]!r} is not within the years 1970 to 2200.")
    return moment


def fields_of(which: pulse.JobFilter) -> list[tuple[str, str]]:
    """Return the filter as fields of a form, with moments instead of spans: it means the same later on."""
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
    """Say which jobs an action is about: "1,204 dead-lettered jobs on email, submitted since …"."""
    status, topic = which.get("status"), which.get("topic")
    count = "" if number is None else words.count(number)
    # Where no status is named, pulsed counts and acts on what is not finished.
    kind = statuses.IN_SENTENCES[status] if status else "unfinished"
    noun = "job" if number == 1 else "jobs"
    parts = [" ".join(filter(None, [count, kind, noun, f"on {topic}" if topic else ""]))]
    shown = {name: value for name, _, value in _conditions(which, zone)}
    parts += [f"submitted since {shown['since']}"] if "since" in shown else []
    parts += [f"submitted before {shown['before']}"] if "before" in shown else []
    parts += [f"made by the schedule {shown['schedule']}"] if "schedule" in shown else []
    parts += [f"with “{shown['error']}” in the error"] if "error" in shown else []
    parts += [f"of the error group {shown['error_group']}"] if "error_group" in shown else []
    metadata = which.get("metadata") or {}
    parts += [f"with {key}={value} in the metadata" for key, value in metadata.items()]
    return ", ".join(parts)


def _conditions(which: pulse.JobFilter, zone: ZoneInfo) -> list[tuple[str, str, str]]:
    """Name, label and value of each condition but metadata."""
    found: list[tuple[str, str, str]] = []
    if topic := which.get("topic"):
        found.append(("topic", "Topic", topic))
    if status := which.get("status"):
        found.append(("status", "Status", statuses.NAMES[status]))
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
            if not limits.TOPIC.fullmatch(text):
                raise ValueError(
                    f"“{text[:40]}” is no topic: it has letters, digits and . _ - : / and begins with "
                    "a letter or digit."
                )
            which["topic"] = text
        case "status":
            if text.upper() not in pulse.JobStatus.__members__:
                raise ValueError(f"“{text[:40]}” is no status: choose one of the list.")
            which["status"] = pulse.JobStatus(text.upper())
        case "since":
            which["since"] = past_moment(text, now=now, zone=zone)
        case "before":
            which["before"] = past_moment(text, now=now, zone=zone)
        case "schedule":
            try:
                which["schedule_id"] = str(UUID(text))
            except ValueError:
                raise ValueError(f"“{text[:40]}” is no schedule’s id: copy it from its page.") from None
        case "error":
            if len(text) > limits.LONGEST_SEARCH or "\0" in text:
                raise ValueError(
                    f"This is too long to look for: {limits.LONGEST_SEARCH} characters are the most."
                )
            which["error_contains"] = text
        case "error_group":
            if not limits.ERROR_GROUP.fullmatch(text):
                raise ValueError(f"“{text[:40]}” is no error group: choose one on the page of dead letters.")
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
        problem = f"{_MOST_METADATA} entries are the most."
    if problem:
        asked.problems["metadata"] = problem
        asked.typed["metadata"] = text
        return
    if key not in found:
        asked.metadata.append(f"{key}={value}")
    asked.which["metadata"] = found | {key: value}


def _check_together(asked: JobQuery) -> None:
    which = asked.which
    since, before = which.get("since"), which.get("before")
    if since is not None and before is not None and before <= since:
        asked.problems["before"] = "This is not later than “since”, so nothing can match."
        del which["before"]
    dead = pulse.JobStatus.DEAD_LETTERED
    if "error_group" in which and which.setdefault("status", dead) != dead:
        asked.problems["error_group"] = "An error group has dead letters only: choose that status."
        del which["error_group"]
