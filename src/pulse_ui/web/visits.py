"""One authenticated request: its user, permissions and navigation, questions before harm, and the answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

import pulse
from pulse_text.consequences import Question
from pulse_ui import tuning
from pulse_ui.settings import Settings
from pulse_ui.web.forms import Form, local_path, query_of
from pulse_ui.web.rendering import Refused
from pulse_ui.web.sessions import Account, Notice, Session
from pulse_ui.words import zone_named

if TYPE_CHECKING:
    from pulse_ui.web.rendering import Rendering

_NOTHING = pulse.Rates(0, 0, 0, 0)
_NEVER = pulse.Latency(0, 0.0, 0.0, 0.0)
NO_TOPICS = pulse.TopicPage(
    (),
    None,
    0,
    pulse.TopicInfo("", 0, 0, 0, 0, 0, None, _NOTHING, _NOTHING, False, 0, _NEVER, _NEVER),
)

NO_SETTINGS = pulse.AllTopicSettings((), {})

_Answer = TypeVar("_Answer")
_Otherwise = TypeVar("_Otherwise")

# Calls that change data. A read-only dashboard never makes them, even if pulsed permits them.
CHANGES = frozenset(
    {
        "SubmitJob",
        "CancelJob",
        "CancelJobs",
        "RetryJob",
        "RetryJobs",
        "PrioritizeJob",
        "PrioritizeJobs",
        "DeleteJob",
        "DeleteJobs",
        "SignalJob",
        "CancelWorkflow",
        "RetryWorkflow",
        "CreateSchedule",
        "UpdateSchedule",
        "PauseSchedule",
        "ResumeSchedule",
        "FireSchedule",
        "DeleteSchedule",
        "SetTopic",
        "HoldTopic",
        "SetLane",
        "PauseDispatch",
        "ResumeDispatch",
        "SetWorkerState",
        "UndoAction",
    }
)


@dataclass(frozen=True, slots=True)
class Visit:
    request: Request
    settings: Settings
    rendering: Rendering
    session: Session
    account: Account

    @property
    def client(self) -> pulse.Pulse:
        """The client of this visitor."""
        return self.account.client

    @property
    def query(self) -> Form:
        return query_of(self.request)

    def part(self, name: str) -> str:
        """Return a part of the path by its name in the route."""
        return str(self.request.path_params[name])

    @property
    def path(self) -> str:
        """The path and query of this page, to return to."""
        url = self.request.url
        return url.path + (f"?{url.query}" if url.query else "")

    @property
    def zone(self) -> ZoneInfo:
        """The time zone that the browser reported, else UTC."""
        return zone_named(self.request.cookies.get("pulse_zone", ""))

    def may(self, method: str) -> bool:
        """True if this visitor may make this call, such as RetryJobs."""
        if self.settings.read_only and method in CHANGES:
            return False
        return self.account.identity.may(method)

    def require(self, method: str | None) -> None:
        """Raise Refused unless this visitor may make the call. None needs no permission."""
        if method is None or self.may(method):
            return
        if self.settings.read_only and method in CHANGES:
            raise Refused(403, "This dashboard is read-only. Nothing was changed.")
        role = self.account.identity.role
        raise Refused(
            403, f"The role {role} is not permitted to do this ({method}). Use a user with another role."
        )

    async def ask(
        self, method: str, question: Callable[[], Awaitable[_Answer]], otherwise: _Otherwise
    ) -> _Answer | _Otherwise:
        """Call pulsed if this visitor is permitted to, else return `otherwise`."""
        return await question() if self.may(method) else otherwise

    async def explain(
        self, question: Callable[[], Awaitable[_Answer]], otherwise: _Otherwise
    ) -> tuple[_Answer | _Otherwise, bool]:
        """Ask pulsed why jobs do not run, if this visitor is permitted to.

        Also returns whether pulsed answered: a page without an explanation is better than no page.
        """
        try:
            return await self.ask("Explain", question, otherwise), True
        except pulse.PulseError:
            return otherwise, False

    async def topics(
        self,
        *,
        search: str = "",
        names: Sequence[str] = (),
        busiest: bool = True,
        limit: int = tuning.TOPICS_ASKED,
        cursor: str = "",
    ) -> pulse.TopicPage:
        """Return topics, the busiest by default, and the sum of all.

        Empty if this visitor may not list them, or the URL has an invalid topic.
        """
        try:
            return await self.ask(
                "ListTopics",
                lambda: self.client.list_topics(
                    search=search or None, names=names, busiest=busiest, limit=limit, cursor=cursor or None
                ),
                NO_TOPICS,
            )
        except pulse.InvalidArgument:
            return NO_TOPICS

    async def topic_suggestions(self) -> list[str]:
        """Return the names of topics that a field of a form suggests."""
        return [topic.topic for topic in (await self.topics()).topics[: tuning.TOPICS_SUGGESTED]]

    async def limits_of(self, topics: Sequence[str]) -> dict[str, pulse.TopicLimits]:
        """Return what limits these topics, by topic. Empty if this visitor may not see it."""
        try:
            found = await self.ask("ListLimits", lambda: self.client.limits(names=topics), ())
        except pulse.InvalidArgument:  # the URL has an invalid topic
            return {}
        return {known.topic: known for known in found}

    async def settings_of(self, topics: Sequence[str]) -> pulse.AllTopicSettings:
        """Return the settings of these topics. Empty if this visitor may not see them."""
        if not topics:  # none would select all
            return NO_SETTINGS
        return await self.ask(
            "ListTopicSettings", lambda: self.client.all_topic_settings(names=topics), NO_SETTINGS
        )

    async def page(self, template: str, *, title: str, status: int = 200, **context: Any) -> HTMLResponse:
        """Return a page within the shared frame."""
        dispatch = await self.ask("GetDispatchStatus", self.client.dispatch_status, None)
        return self.rendering.page(
            template,
            {
                **context,
                "title": title,
                "visit": self,
                "may": self.may,
                "navigation": navigation(self.request.url.path, self.may, self.query.text("view")),
                "identity": self.account.identity,
                "dispatch": dispatch,
                "operations": self.account.operations.running(),
                "notices": self.session.take_notices(),
                "csrf": self.session.csrf_token,
            },
            status=status,
            request=self.request,
        )

    def fragment(self, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
        """Return a fragment of a page."""
        return self.rendering.page(
            template,
            {**context, "visit": self, "may": self.may, "csrf": self.session.csrf_token},
            status=status,
            request=self.request,
        )

    def go(
        self, path: str, notice: str = "", *, kind: str = "good", link: tuple[str, str] | None = None
    ) -> Response:
        """Redirect to a page that shows the notice. `link` is (path, text)."""
        if notice:
            self.session.add_notice(Notice(notice, kind, *(link or ())))
        # 303: the browser gets the page, and a reload does not repeat the change.
        return RedirectResponse(local_path(path), status_code=303)

    def back(self, form: Form, notice: str = "", *, kind: str = "good", otherwise: str = "/") -> Response:
        """Redirect to the page in the form's field `back`."""
        return self.go(local_path(form.raw("back"), otherwise), notice, kind=kind)

    async def begin(
        self,
        steps: AsyncGenerator[int, None],
        *,
        title: str,
        done_word: str,
        total: int | None,
        back: str,
        again: str,
        undo_id: str = "",
    ) -> Response:
        """Start an operation and redirect to its page, after a short wait for its result."""
        operation = self.account.operations.begin(
            steps, title=title, done_word=done_word, total=total, back=back, again=again, undo_id=undo_id
        )
        await operation.settle(tuning.OPERATION_WAIT_SECONDS)
        return self.go(f"/operations/{operation.number}")


# ---------------------------------------------------------------- questions
# Asked before a form deletes or stops jobs, with a count. The answer is the same form once more.

_ANSWER = "confirmed"


async def asks(visit: Visit, form: Form, *questions: Question, verb: str) -> Response | None:
    """Return the page with the questions, or None to go on: nothing is at risk, or the answer was yes."""
    if form.text(_ANSWER) == "yes":
        return None
    texts = [text for question in questions if (text := await _text(visit, question)) is not None]
    if not texts:
        return None
    page = await visit.page(
        "question.html",
        title="Are you sure?",
        text=" ".join(texts),
        verb=verb,
        back=local_path(form.raw("back")),
        fields=[*(field for field in form.items() if field[0] not in ("csrf", "back")), (_ANSWER, "yes")],
    )
    page.headers["HX-Push-Url"] = "false"  # of a form: it cannot be loaded again
    return page


async def _text(visit: Visit, question: Question) -> str | None:
    answer: Any = None
    try:
        while True:
            method, options = question.send(answer)
            answer = await getattr(visit.client, method)(**options)
    except StopIteration as end:
        text: str | None = end.value
        return text
    except pulse.PermissionDenied:  # of the count
        return None


# ---------------------------------------------------------------- navigation


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
