"""The navigation: six sections, and the pages of the current section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class _Page(NamedTuple):
    path: str
    name: str
    needs: str
    """The RPC that the page needs."""


# A section is named after its first page.
_SECTIONS = {
    "Overview": (_Page("/", "Overview", "ListTopics"),),
    "Jobs": (
        _Page("/jobs", "All jobs", "ListJobs"),
        _Page("/workflows", "Workflows", "ListWorkflows"),
        _Page("/dead-letters", "Dead letters", "ListDeadLetterGroups"),
    ),
    "Topics": (
        _Page("/topics", "All topics", "ListTopics"),
        _Page("/dispatch", "Pauses", "GetDispatchStatus"),
        _Page("/topics?view=limits", "Limits", "ListLimits"),
        _Page("/topics?view=settings", "Settings", "ListTopicSettings"),
    ),
    "Schedules": (_Page("/schedules", "Schedules", "ListSchedules"),),
    "Workers": (_Page("/workers", "Workers", "ListWorkers"),),
    "Audit": (_Page("/audit", "Audit", "ListAudit"),),
}


@dataclass(frozen=True, slots=True)
class Link:
    path: str
    name: str
    is_here: bool


@dataclass(frozen=True, slots=True)
class Navigation:
    sections: tuple[Link, ...]
    pages: tuple[Link, ...]
    """The pages of the current section; empty if it has only one."""


def navigation(path: str, may: Callable[[str], bool], view: str = "") -> Navigation:
    """Return the sections and pages that the visitor may open, seen from the view of the page at `path`."""
    views = {page.path for pages in _SECTIONS.values() for page in pages}
    here = of_view if (of_view := f"{path}?view={view}") in views else path
    sections: list[Link] = []
    pages: tuple[Link, ...] = ()
    for name, known in _SECTIONS.items():
        links = tuple(
            Link(page.path, page.name, _is_at(here, page.path)) for page in known if may(page.needs)
        )
        if not links:
            continue
        is_here = any(link.is_here for link in links)
        sections.append(Link(links[0].path, name, is_here))
        if is_here and len(links) > 1:
            pages = links
    return Navigation(tuple(sections), pages)


def _is_at(path: str, page: str) -> bool:
    return path == page or (page != "/" and path.startswith(f"{page}/"))
