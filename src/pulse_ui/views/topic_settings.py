"""The settings of a topic: each entry, its value in force, who decided it, and its text in the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pulse
from pulse.topic_settings import ENTRIES, Declares, Entry
from pulse_text import printable


@dataclass(frozen=True, slots=True)
class EntryView:
    """One entry of the settings of a topic."""

    entry: Entry
    text: str
    """The value in force."""
    source: str
    """Who decided it: operator, code, pool or server; empty if it is not set."""
    entered: str
    """The text to edit in a form; empty unless an operator has set it."""
    otherwise: str
    """What decides without an operator, with the value."""
    explanation: str
    """The values of all owners, in one line."""
    before: str
    """The longer duration that counts until a shortened one takes effect."""

    @property
    def is_own(self) -> bool:
        """Whether the topic differs from the settings of the server."""
        return self.source not in ("", "server") or bool(self.before)


@dataclass(frozen=True, slots=True)
class Group:
    """The entries of one subject: limits, runs, retention."""

    name: str
    title: str
    entries: tuple[EntryView, ...]

    @property
    def own(self) -> tuple[EntryView, ...]:
        return tuple(view for view in self.entries if view.is_own)


@dataclass(frozen=True, slots=True)
class Differing:
    """What one or several workers declare, where workers differ."""

    worker: str
    others: int
    text: str
    declared_at: datetime | None


@dataclass(frozen=True, slots=True)
class SettingsView:
    topic: str
    entries: Mapping[str, EntryView]
    has_operator: bool
    set_by: str
    set_at: datetime | None
    is_declared: bool
    declared_by: str
    declared_at: datetime | None
    differing: tuple[Differing, ...]
    shorter_from: datetime | None
    """When shortened durations take effect."""
    pending: str
    """What the last change of limits waits for; empty if it is in force."""

    @property
    def groups(self) -> tuple[Group, ...]:
        names = dict.fromkeys(view.entry.group for view in self.entries.values())
        return tuple(
            Group(
                name, name.title(), tuple(view for view in self.entries.values() if view.entry.group == name)
            )
            for name in names
        )


def settings_view(settings: pulse.TopicSettings, server: Mapping[str, Any]) -> SettingsView:
    """Return the view of a topic. `server` has the settings of the server."""
    return SettingsView(
        printable.one_line(settings.topic),
        {name: _entry(entry, settings, server) for name, entry in ENTRIES.items()},
        bool(settings.operator),
        printable.one_line(settings.set_by),
        settings.set_at,
        bool(settings.declared),
        printable.one_line(settings.declared_by),
        settings.declared_at,
        tuple(
            Differing(
                printable.one_line(each.worker_id), each.workers - 1, _said(each.entries), each.declared_at
            )
            for each in settings.differing
        ),
        settings.shorter_from,
        printable.one_line(settings.pending),
    )


def server_view(server: Mapping[str, Any]) -> SettingsView:
    """Return the view of the settings of the server, which hold for all other topics."""
    return settings_view(pulse.TopicSettings("", server, dict.fromkeys(server, "server")), server)


def _entry(entry: Entry, settings: pulse.TopicSettings, server: Mapping[str, Any]) -> EntryView:
    name = entry.name
    said = []
    if name in settings.operator:
        said.append(f"set by an operator: {entry.words(settings.operator[name])}")
    if name in settings.declared:
        said.append(f"declared by the code: {entry.words(settings.declared[name])}")
    # Servers have no limits.
    if entry.declares is not Declares.CONNECTED:
        said.append(f"the server’s setting: {entry.words(server.get(name))}")
    otherwise = said[1:] if name in settings.operator else said
    source = settings.decided_by.get(name, "")
    if source == "pool":
        said.insert(0, f"in force, of its pool: {entry.words(settings.in_force.get(name))}")
    return EntryView(
        entry,
        entry.words(settings.in_force.get(name)),
        source,
        entry.text(settings.operator.get(name)),
        otherwise[0] if otherwise else "not set",
        "; ".join(said) or "not set",
        entry.words(settings.before[name]) if name in settings.before else "",
    )


def _said(entries: Mapping[str, Any]) -> str:
    said = [
        f"{entry.title.lower()} {entry.words(entries[name])}"
        for name, entry in ENTRIES.items()
        if name in entries
    ]
    return ", ".join(said) or "nothing"
