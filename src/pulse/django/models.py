"""The model of the admin's list of jobs. It has no table: the page reads jobs through the SDK."""

from __future__ import annotations

from django.db import models


class Job(models.Model):
    """A job, for the permission `pulse.view_job` and the place in the admin."""

    id = models.UUIDField(primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view",)
