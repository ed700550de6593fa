"""The test suite of a Django project over the kit: views, transactions, sync and async handlers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.projects import run_suite, suite_result

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


# ---------------------------------------------------------------- Django's own runner

UNDER_DJANGO = {
    "manage.py": """
        import os
        import sys

        from django.core.management import execute_from_command_line

        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
        execute_from_command_line(sys.argv)
    """,
    "settings.py": """
        import os

        SECRET_KEY = "x"
        INSTALLED_APPS = ["pulse.django", "shop"]
        _ENGINE = "django.db.backends.sqlite3"
        DATABASES = {"default": {"ENGINE": _ENGINE, "NAME": "db", "TEST": {"NAME": "test-db"}}}
        USE_TZ = True
        PULSE = {"ADDRESS": os.environ["PULSE_ADDR"]}
        if "CONNECT" in os.environ:
            PULSE["CONNECT_IN_TESTS"] = True
    """,
    "shop/__init__.py": "",
    "shop/tasks.py": """
        import pulse
        from pulse.django import app

        plain = pulse.SyncPulse()


        @app.job("mail")
        def mail(to: str) -> str:
            return to
    """,
}
GUARDED = """
    import pulse
    from django.test import SimpleTestCase, TestCase, TransactionTestCase
    from pulse.testing import Kit
    from shop.tasks import mail, plain


    class Unguarded(TransactionTestCase):
        def test_enqueue_is_refused(self):
            with self.assertRaisesRegex(pulse.ClientClosed, "(?s)Kit.*CONNECT_IN_TESTS"):
                mail.enqueue(to="ada")

        def test_other_client_is_refused(self):
            with self.assertRaisesRegex(pulse.ClientClosed, "CONNECT_IN_TESTS"):
                plain.enqueue("mail", {"to": "ada"})


    class Simple(SimpleTestCase):
        def test_refused_without_a_database(self):
            with self.assertRaisesRegex(pulse.ClientClosed, "CONNECT_IN_TESTS"):
                plain.get_job("01a1eeeb-a99e-7b37-b801-74f399d7512b")


    class Guarded(TestCase):
        def setUp(self):
            self.kit = self.enterContext(Kit())

        def test_kit_runs_the_job(self):
            with self.kit.on_commit():
                mail.enqueue(to="ada")
            self.assertEqual(self.kit.drain(), {"completed": 1})
"""


@pytest.mark.parametrize("options", [(), ("--parallel", "2")])
def test_no_client_connects_under_the_runner_of_django(tmp_path: Path, options: tuple[str, ...]) -> None:
    files = {**UNDER_DJANGO, "shop/tests.py": GUARDED}
    printed = suite_result(tmp_path, files, "test", *options, module="manage")
    assert "Ran 4 tests" in printed
    assert "OK" in printed


def test_setting_lets_clients_connect_under_the_runner_of_django(tmp_path: Path) -> None:
    tests = """
        from datetime import timedelta

        import pulse
        from django.test import SimpleTestCase
        from shop.tasks import plain


        class Connecting(SimpleTestCase):
            def test_connects(self):
                with self.assertRaises(pulse.Unavailable):  # nothing listens there
                    plain.enqueue("mail", {"to": "ada"}, timeout=timedelta(milliseconds=200))
    """
    ended = run_suite(
        tmp_path, {**UNDER_DJANGO, "shop/tests.py": tests}, "test", module="manage", CONNECT="1"
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_outside_of_tests_clients_connect(tmp_path: Path) -> None:
    program = """
        import os
        from datetime import timedelta

        import django

        os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
        django.setup()
        import django.test.utils  # loaded, as by a library of the project
        import pulse
        from shop.tasks import plain

        try:
            plain.enqueue("mail", {"to": "ada"}, timeout=timedelta(milliseconds=200))
        except pulse.Unavailable:
            print("tried to connect")
    """
    ended = run_suite(tmp_path, {**UNDER_DJANGO, "program.py": program}, module="program")
    assert "tried to connect" in ended.stdout, ended.stderr
