"""The orders of the shop."""

from django.db import models


class Order(models.Model):
    """An order, and how many receipts were sent for it."""

    total = models.IntegerField()
    receipts = models.IntegerField(default=0)
