"""One request of a visitor: who it is, what they may do, and how they are answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

import pulse
from pulse_ui import tuning
from pulse_ui.settings import Settings
from pulse_ui.views.zones import zone_named
from pulse_ui.web.failures import Refused
from pulse_ui.web.forms import Form, local_path, query_of
from pulse_ui.web.sessions import Account, Notice, Session

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

_Answer = TypeVar("_Answer")
_Otherwise = TypeVar("_Otherwise")

# The calls that change something. A read-only dashboard makes none of them, whatever pulsed would allow.
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
        "CreateSchedule",
        "UpdateSchedule",
        "PauseSchedule",
        "ResumeSchedule",
        "FireSchedule",
        "DeleteSchedule",
        "PauseDispatch",
        "ResumeDispatch",
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
        """pulsed, as this visitor may see it."""
        return self.account.client

    @property
    def query(self) -> Form:
        return query_of(self.request)

    @property
    def path(self) -> str:
        """The page and its query, to come back to."""
        url = self.request.url
        return url.path + (f"?{url.query}" if url.query else "")

    @property
    def zone(self) -> ZoneInfo:
        """The visitor's time zone, as far as their browser told."""
        return zone_named(self.request.cookies.get("pulse_zone", ""))

    def may(self, method: str) -> bool:
        """True if this visitor may have this call of the contract made, such as RetryJobs."""
        if self.settings.read_only and method in CHANGES:
            return False
        return self.account.identity.may(method)

    def require(self, method: str | None) -> None:
        """Raise Refused unless this visitor may have the call made. None needs no permission."""
        if method is None or self.may(method):
            return
        if self.settings.read_only and method in CHANGES:
            raise Refused(403, "This dashboard is read-only: it changes nothing. Nothing was changed.")
        role = self.account.identity.role
        raise Refused(403, f"The role {role} may not do this ({method}): ask for a user with another one.")

    async def ask(
        self, method: str, question: Callable[[], Awaitable[_Answer]], otherwise: _Otherwise
    ) -> _Answer | _Otherwise:
        """Ask pulsed what the page shows besides; `otherwise` where this visitor may not have it."""
        return await question() if self.may(method) else otherwise

    async def topics(
        self,
        *,
        search: str = "",
        names: Sequence[str] = (),
        busiest: bool = True,
        limit: int = tuning.TOPICS_ASKED,
        cursor: str = "",
    ) -> pulse.TopicPage:
        """Return the busiest topics, or others, and the sum over all.

        None where this visitor may not list them, or an address names what can be no topic.
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

    async def page(self, template: str, *, title: str, status: int = 200, **context: Any) -> HTMLResponse:
        """Return a page, within the frame that all of them share."""
        dispatch = await self.ask("GetDispatchStatus", self.client.dispatch_status, None)
        return self.rendering.page(
            template,
            {
                **context,
                "title": title,
                "visit": self,
                "may": self.may,
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
        """Return a piece of a page."""
        return self.rendering.page(
            template,
            {**context, "visit": self, "may": self.may, "csrf": self.session.csrf_token},
            status=status,
            request=self.request,
        )

    def go(
        self, path: str, notice: str = "", *, kind: str = "good", link: tuple[str, str] | None = None
    ) -> Response:
        """Send the browser to a page, which will show the notice. `link` is (path, text)."""
        if notice:
            self.session.add_notice(Notice(notice, kind, *(link or ())))
        # 303: the browser gets the page, and a reload does not repeat the change.
        return RedirectResponse(local_path(path), status_code=303)

    def back(self, form: Form, notice: str = "", *, kind: str = "good", otherwise: str = "/") -> Response:
        """Send the browser back to the page that its form names in `back`."""
        return self.go(local_path(form.raw("back"), otherwise), notice, kind=kind)
