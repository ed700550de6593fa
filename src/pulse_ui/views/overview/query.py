"""The query of the overview and of the pages of topics, and the URLs of other choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import quote, urlencode

from pulse_ui.views.overview.topics import TROUBLE

SPANS = {60: "last hour", 360: "last 6 h", 1_440: "last 24 h"}
"""The spans that can be chosen, in minutes, with their names."""
_DEFAULT_SPAN = 60
_LONGEST_SEARCH = 255


def topic_path(topic: str, section: str = "") -> str:
    """Return the URL of the page of a topic, or of a section of it. Its name may contain slashes."""
    return f"/topics/{quote(topic)}" + (f"#{section}" if section else "")


@dataclass(frozen=True, slots=True)
class OverviewQuery:
    minutes: int = _DEFAULT_SPAN
    path: str = "/"
    """The page: the overview, the list of topics, or one topic."""
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
        return self.path + ("?" + urlencode(query) if query else "") + fragment

    def _query(self) -> dict[str, str]:
        query: dict[str, str] = {}
        if self.minutes != _DEFAULT_SPAN:
            query["minutes"] = str(self.minutes)
        if self.sort != TROUBLE:
            query["sort"] = self.sort
        if self.shows_all:
            query["all"] = "1"
        if self.search:
            query["search"] = self.search
        if self.cursor:
            query["cursor"] = self.cursor
        return query


def read_overview_query(text_of: Callable[[str], str], path: str = "/") -> OverviewQuery:
    """Read the query of a URL by the names of its fields. Invalid values are ignored."""
    minutes = text_of("minutes")
    chosen = int(minutes) if minutes.isascii() and minutes.isdigit() and len(minutes) < 6 else _DEFAULT_SPAN
    return OverviewQuery(
        chosen if chosen in SPANS else _DEFAULT_SPAN,
        path,
        text_of("sort") or TROUBLE,
        bool(text_of("all")),
        text_of("search")[:_LONGEST_SEARCH],
        text_of("cursor"),
    )
