"""pulse for Django: settings, one client for the project, and jobs that wait for the commit.

    # settings.py
    INSTALLED_APPS = [..., "pulse.django"]
    PULSE = {"ADDRESS": "localhost:50051"}

    # shop/tasks.py
    from pulse.django import app

    @app.job("send-receipt")
    def send_receipt(order: int) -> None: ...

    # shop/views.py, also inside of transaction.atomic()
    send_receipt.enqueue(order.id)

`python manage.py pulse_worker` runs the handlers.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse.django.clients import DjangoPulse, aclient, aenqueue, client, enqueue_now

    app: DjangoPulse
else:
    # On first use: Django imports this package before its settings can be read.

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'pulse.django' has no attribute {name!r}")
        clients = import_module("pulse.django.clients")
        return clients.client() if name == "app" else getattr(clients, name)


__all__ = ["DjangoPulse", "aclient", "aenqueue", "app", "client", "enqueue_now"]
