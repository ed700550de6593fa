"""What a visitor chose to see of the overview, and the addresses of the other choices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlencode

from pulse_ui.views.topic_table import TROUBLE

SPANS = {60: "last hour", 360: "last 6 h", 1_440: "last 24 h"}
"""Minutes that can be chosen, and what they are called."""
_DEFAULT_SPAN = 60


@dataclass(frozen=True, slots=True)
class Glance:
    minutes: int = _DEFAULT_SPAN
    topic: str | None = None
    """Only this one's figures and charts."""
    sort: str = TROUBLE
    shows_all: bool = False
    """All topics, however many there are."""

    @property
    def span(self) -> str:
        return SPANS[self.minutes]

    def span_path(self, minutes: int) -> str:
        return replace(self, minutes=minutes)._path()

    def topic_path(self, topic: str | None) -> str:
        return replace(self, topic=topic)._path()

    def sort_path(self, column: str) -> str:
        return replace(self, sort=column)._path("#topics")

    @property
    def all_topics_path(self) -> str:
        return replace(self, shows_all=True)._path("#topics")

    def _path(self, fragment: str = "") -> str:
        query: dict[str, str] = {}
        if self.minutes != _DEFAULT_SPAN:
            query["minutes"] = str(self.minutes)
        if self.topic is not None:
            query["topic"] = self.topic
        if self.sort != TROUBLE:
            query["sort"] = self.sort
        if self.shows_all:
            query["all"] = "1"
        return ("/?" + urlencode(query) if query else "/") + fragment


def glance_of(minutes: str, topic: str, sort: str, shows_all: bool) -> Glance:
    """Read what stands in an address. What cannot be is taken as not said."""
    chosen = int(minutes) if minutes.isascii() and minutes.isdigit() and len(minutes) < 6 else _DEFAULT_SPAN
    return Glance(chosen if chosen in SPANS else _DEFAULT_SPAN, topic or None, sort or TROUBLE, shows_all)
