"""The test suite of a Django project over the kit: views, transactions, sync and async handlers."""

from __future__ import annotations

from pathlib import Path

from tests.testing.projects import suite_result

PROJECT = {
    "settings.py": """
        SECRET_KEY = "x"
        INSTALLED_APPS = ["shop"]
        ROOT_URLCONF = "shop.urls"
        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
        DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
        USE_TZ = True
    """,
    "shop/__init__.py": "",
    "shop/models.py": """
        from django.db import models


        class Order(models.Model):
            email = models.TextField()
            state = models.TextField(default="new")
    """,
    "shop/tasks.py": """
        import threading

        import pulse

        p = pulse.SyncPulse()
        a = pulse.Pulse()
        threads = []


        @p.job("confirm")
        def confirm(order_id: int) -> str:
            from shop.models import Order

            threads.append(threading.current_thread())
            order = Order.objects.get(pk=order_id)
            order.state = "confirmed"
            order.save()
            return order.email


        @a.job("ship")
        async def ship(order_id: int) -> None:
            from shop.models import Order

            order = await Order.objects.aget(pk=order_id)
            order.state = "shipped"
            await order.asave()
    """,
    "shop/urls.py": """
        from django.db import transaction
        from django.http import HttpResponse
        from django.urls import path
        from shop import tasks
        from shop.models import Order


        def signup(request):
            order = Order.objects.create(email=request.POST["email"])
            transaction.on_commit(lambda: tasks.confirm.enqueue(order.pk))
            return HttpResponse("ok")


        async def ship(request):
            order = await Order.objects.aget(email=request.POST["email"])
            await tasks.ship.enqueue(order_id=order.pk)
            return HttpResponse("ok")


        urlpatterns = [path("signup", signup), path("ship", ship)]
    """,
}

TESTS = """
    import threading

    import pytest
    from django.test import TestCase
    from shop import tasks
    from shop.models import Order

    import pulse
    from pulse.testing import Kit


    @pytest.mark.django_db
    def test_signup(pulse_kit, client):
        with pulse_kit.on_commit():
            client.post("/signup", {"email": "ada@x"})
        job = pulse_kit.one(tasks.confirm)
        assert pulse_kit.drain() == {"completed": 1}
        assert pulse_kit.result(job) == "ada@x"
        assert Order.objects.get().state == "confirmed"
        assert tasks.threads == [threading.main_thread()]


    @pytest.mark.django_db
    def test_rollback_is_seen_in_the_next_test(pulse_kit):
        assert Order.objects.count() == 0


    @pytest.mark.django_db
    def test_async_handler_sees_the_transaction(pulse_kit, client):
        Order.objects.create(email="bob@x")
        client.post("/ship", {"email": "bob@x"})
        assert pulse_kit.drain() == {"completed": 1}
        assert Order.objects.get().state == "shipped"


    @pytest.mark.django_db
    async def test_async_test(pulse_kit, async_client):
        order = await Order.objects.acreate(email="cid@x")
        await async_client.post("/ship", {"email": "cid@x"})
        await tasks.a.enqueue("confirm", {"order_id": order.pk})
        assert await pulse_kit.adrain() == {"completed": 2}
        assert {row.state async for row in Order.objects.all()} == {"confirmed"}


    @pytest.mark.django_db
    def test_without_the_kit_nothing_connects():
        with pytest.raises(pulse.ClientClosed, match="pulse_kit"):
            tasks.confirm.enqueue(1)


    class Orders(TestCase):
        def setUp(self):
            self.kit = self.enterContext(Kit())

        def test_confirm(self):
            order = Order.objects.create(email="kay@x")
            tasks.confirm.enqueue(order.pk)
            self.assertEqual(self.kit.drain(), {"completed": 1})
            order.refresh_from_db()
            self.assertEqual(order.state, "confirmed")

        async def test_ship(self):
            order = await Order.objects.acreate(email="kay@x")
            await tasks.ship.enqueue(order_id=order.pk)
            self.assertEqual(await self.kit.adrain(), {"completed": 1})
            await order.arefresh_from_db()
            self.assertEqual(order.state, "shipped")
"""


def test_pytest_django(tmp_path: Path) -> None:
    options = ("--ds=settings", "-o", "asyncio_mode=auto", "--no-migrations")
    assert "7 passed" in suite_result(tmp_path, {**PROJECT, "test_shop.py": TESTS}, *options)


def test_pytest_django_with_xdist(tmp_path: Path) -> None:
    options = ("--ds=settings", "-o", "asyncio_mode=auto", "--no-migrations", "-n", "2")
    assert "7 passed" in suite_result(tmp_path, {**PROJECT, "test_shop.py": TESTS}, *options)
