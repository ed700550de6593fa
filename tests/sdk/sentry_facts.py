"""Facts that handlers set for Sentry, and those that its events have."""

from __future__ import annotations

import json
from typing import Any

import sentry_sdk

from tests.sdk.fake_pulsed import FakePulsed


def facts(event: Any) -> tuple[dict[str, str], Any, list[str]]:
    """Return what handlers have set: the tags, the user and the breadcrumbs of an event."""
    crumbs = (crumb["message"] for crumb in event.get("breadcrumbs", {}).get("values", ()))
    return event.get("tags", {}), event.get("user"), [crumb for crumb in crumbs if crumb.startswith("began")]


def set_facts(tenant: str) -> None:
    sentry_sdk.set_tag("tenant", tenant)
    sentry_sdk.set_user({"id": tenant})
    sentry_sdk.set_context("order", {"tenant": tenant})
    sentry_sdk.add_breadcrumb(message=f"began {tenant}")


def facts_of(tenant: str) -> tuple[dict[str, str], Any, list[str]]:
    return {"tenant": tenant}, {"id": tenant}, [f"began {tenant}"]


def deliver(fake: FakePulsed, job_id: str, topic: str, tenant: str) -> None:
    fake.deliver(job_id, topic=topic, payload=json.dumps({"tenant": tenant}).encode(), max_attempts=1)


NOTHING: tuple[dict[str, str], Any, list[str]] = ({}, None, [])
