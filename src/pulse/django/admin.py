"""The admin's list of jobs, to read only. Staff need the permission `pulse.view_job`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.http import urlencode

from pulse.django.clients import client, configured
from pulse.django.models import Job
from pulse.errors import PulseError
from pulse.jobs.models import JobStatus, Page

_PAGE_SIZE = 50
# Shorter than the default of clients: a page that cannot be filled says why.
_TIMEOUT = timedelta(seconds=5)
_HEADS = ("Job", "Topic and last error", "Status", "Attempts", "Submitted", "Finished")
_FILTERS = ("topic", "status")


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):
    """One page of jobs, newest first, by topic and status."""

    def get_urls(self) -> list[Any]:
        """Return the address of the list alone: a job has no page here, the dashboard has one."""
        return [path("", self.admin_site.admin_view(self.changelist_view), name="pulse_job_changelist")]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: jobs are read only."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: jobs are read only."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: jobs are read only."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> TemplateResponse:
        """Show the jobs, or the sentence of the error that kept them away."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        chosen = {name: value for name in _FILTERS if (value := request.GET.get(name, "").strip())}
        page, problem = _read(chosen, request.GET.get("cursor"))
        request.current_app = self.admin_site.name  # which may not be the default: links lead to its pages
        context = {
            **self.admin_site.each_context(request),
            "title": "Jobs",
            "opts": self.model._meta,
            "heads": _HEADS,
            "jobs": [(job, (job.last_error or "").partition("\n")[0]) for job in page or ()],
            "problem": problem,
            "chosen": chosen,
            "dashboard": configured().dashboard,
            "statuses": _links(chosen),
            "next": page and page.next_cursor and _query(chosen | {"cursor": page.next_cursor}),
            "first": "cursor" in request.GET and _query(chosen),
            **(extra_context or {}),
        }
        return TemplateResponse(request, "pulse/admin_jobs.html", context)


def _read(chosen: dict[str, str], cursor: str | None) -> tuple[Page | None, str]:
    """Return the page, or a sentence that states why there is none."""
    try:
        return client().list_jobs(
            limit=_PAGE_SIZE,
            cursor=cursor or None,
            timeout=_TIMEOUT,
            topic=chosen.get("topic"),
            status=chosen.get("status"),
        ), ""
    except PulseError as error:
        return None, error.message


def _links(chosen: dict[str, str]) -> list[dict[str, Any]]:
    """Return a link for each status, and one for all."""
    topic = {name: chosen[name] for name in chosen if name != "status"}
    links = [{"name": "All", "query": _query(topic), "is_chosen": "status" not in chosen}]
    for status in JobStatus:
        name = status.value.replace("_", " ").capitalize()
        query = _query(topic | {"status": status.value})
        links.append({"name": name, "query": query, "is_chosen": chosen.get("status") == status})
    return links


def _query(values: dict[str, str]) -> str:
    return f"?{urlencode(values)}"
