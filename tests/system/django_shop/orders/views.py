"""Views that store an order and a job for it. With `?full` they fail after that."""

import os

from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, JsonResponse

from orders.models import Order
from orders.tasks import asend_receipt, send_receipt
from pulse.django import aclient, aenqueue


@transaction.atomic
def buy(request: HttpRequest) -> JsonResponse:
    """Store both."""
    order = Order.objects.create(total=90)
    job = send_receipt.enqueue(order.pk)
    if "full" in request.GET:
        raise ValueError("no room left")
    return JsonResponse({"order": order.pk, "job": job.id, "process": os.getpid()})


async def abuy(request: HttpRequest) -> JsonResponse:
    """Do the same in async code, whose transactions are in sync functions."""
    order = await Order.objects.acreate(total=90)
    if "full" in request.GET:
        await sync_to_async(_fail)(order.pk)
    job = await aenqueue(asend_receipt, order.pk)
    return JsonResponse({"order": order.pk, "job": job.id, "process": os.getpid()})


async def status(_: HttpRequest, job: str) -> JsonResponse:
    """Read a job."""
    found = await aclient().get_job(job)
    return JsonResponse({"status": found.status.name})


@transaction.atomic
def _fail(order: int) -> None:
    asend_receipt.enqueue(order)
    raise ValueError("no room left")
