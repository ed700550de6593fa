"""The client of the project, with Django set up and all handlers imported: for processes of workers."""

from __future__ import annotations

import django
from django.apps import apps

from pulse.django.clients import client

if not apps.ready:
    django.setup()

app = client()
