"""The query of the overview, and the URLs of other choices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlencode

from pulse_ui.views.overview.topics import TROUBLE

SPANS = {60: "last hour", 360: "last 6 h", 1_440: "last 24 h"}
"""The spans that can be chosen, in minutes, with their names."""
_DEFAULT_SPAN = 60
_LONGEST_SEARCH = 255


@dataclass(frozen=True, slots=True)
class OverviewQuery:
    minutes: int = _DEFAULT_SPAN
    topic: str | None = None
    """Restricts the figures and charts."""
    sort: str = TROUBLE
    shows_all: bool = False
    """All topics, page by page if there are many."""
    search: str = ""
    """Only topics whose name contains this."""
    cursor: str = ""
    """The cursor of the page of topics."""

    @property
    def span(self) -> str:
        return SPANS[self.minutes]

    def span_path(self, minutes: int) -> str:
        return replace(self, minutes=minutes)._path()

    def topic_path(self, topic: str | None) -> str:
        return replace(self, topic=topic)._path()

    def sort_path(self, column: str) -> str:
        return replace(self, sort=column, cursor="")._path("#topics")

    @property
    def all_topics_path(self) -> str:
        return replace(self, shows_all=True, cursor="")._path("#topics")

    @property
    def unsearched_path(self) -> str:
        return replace(self, search="", cursor="")._path("#topics")

    def page_path(self, cursor: str) -> str:
        return replace(self, shows_all=True, cursor=cursor)._path("#topics")

    @property
    def kept_fields(self) -> list[tuple[str, str]]:
        """The fields that a new search keeps."""
        return [
            (name, value) for name, value in self._query().items() if name not in ("search", "cursor", "all")
        ]

    def _path(self, fragment: str = "") -> str:
        query = self._query()
        return ("/?" + urlencode(query) if query else "/") + fragment

    def _query(self) -> dict[str, str]:
        query: dict[str, str] = {}
        if self.minutes != _DEFAULT_SPAN:
            query["minutes"] = str(self.minutes)
        if self.topic is not None:
            query["topic"] = self.topic
        if self.sort != TROUBLE:
            query["sort"] = self.sort
        if self.shows_all:
            query["all"] = "1"
        if self.search:
            query["search"] = self.search
        if self.cursor:
            query["cursor"] = self.cursor
        return query


def read_overview_query(
    minutes: str, topic: str, sort: str, shows_all: bool, search: str = "", cursor: str = ""
) -> OverviewQuery:
    """Read the query of a URL. Invalid values are ignored."""
    chosen = int(minutes) if minutes.isascii() and minutes.isdigit() and len(minutes) < 6 else _DEFAULT_SPAN
    span = chosen if chosen in SPANS else _DEFAULT_SPAN
    return OverviewQuery(span, topic or None, sort or TROUBLE, shows_all, search[:_LONGEST_SEARCH], cursor)
