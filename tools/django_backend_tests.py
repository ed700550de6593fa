"""Runs Django's own tests of tasks and of its task backends over the backend of pulse.

    python3 -m tools.django_backend_tests PATH

PATH is a source tree of Django 6 or newer, such as an unpacked sdist, whose Django is used. This needs
Python 3.12, pulse with the extra `testing`, asgiref and sqlparse.
"""

import logging
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

_FILES = ("__init__.py", "tasks.py", "test_dummy_backend.py", "test_immediate_backend.py", "test_tasks.py")
_STAND_INS = "tools.django_backends"
_REPLACED = ("django.tasks.backends.dummy", "django.tasks.backends.immediate")
# Tests of what Django's backends lack, or of how they are made.
_OWN_LIST = "it changes the list in which DummyBackend keeps results"
_NOT_MEANT = {
    "ImmediateBackendTestCase.test_cannot_get_result": "pulse reads results",
    "ImmediateBackendTestCase.test_cannot_refresh_result": "pulse reads results",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "pulse has run_after",
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": "a worker goes on, and the task has failed",
    "DummyBackendTestCase.test_refresh_result": _OWN_LIST,
    "DummyBackendTestCase.test_refresh_result_async": _OWN_LIST,
}


def main() -> int:
    """Run the tests. Returns 1 if one fails that is meant for every backend."""
    if len(sys.argv) != 2 or not (source := Path(sys.argv[1]).resolve() / "tests" / "tasks").is_dir():
        print(f"{__doc__}\nNo source tree of Django 6 with tests/tasks was given.")
        return 2
    sys.path.insert(0, str(source.parent.parent))
    with tempfile.TemporaryDirectory(prefix="pulse-django-") as directory:
        _copy(source, Path(directory, "tasks"))
        sys.path.insert(0, directory)
        _set_up()
        result = _run()
    return _report(result)


def _copy(source: Path, place: Path) -> None:
    """Copy the tests, with the backends of pulse in the place of Django's."""
    shutil.copytree(source, place, ignore=lambda _, names: [name for name in names if name not in _FILES])
    for file in place.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for module in _REPLACED:
            text = text.replace(module, _STAND_INS)
        file.write_text(text, encoding="utf-8")


def _set_up() -> None:
    import django
    from django.conf import settings

    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "pulse.django"],
        SECRET_KEY="not a secret",
        USE_TZ=True,
    )
    django.setup()
    logging.getLogger("pulse").setLevel(logging.CRITICAL)


def _run() -> unittest.TestResult:
    from django.test.runner import DiscoverRunner

    from tools.django_backends import kit

    runner = DiscoverRunner(verbosity=1)
    runner.setup_test_environment()
    databases = runner.setup_databases()
    with kit:
        result: unittest.TestResult = runner.run_suite(runner.build_suite(["tasks"]))
    runner.teardown_databases(databases)
    runner.teardown_test_environment()
    return result


def _report(result: unittest.TestResult) -> int:
    import django

    failed = {_name(test) for test, _ in [*result.failures, *result.errors]}
    print(f"\nDjango {django.get_version()}, Python {sys.version.partition(' ')[0]}: ", end="")
    print(f"{result.testsRun} tests, {result.testsRun - len(failed)} passed")
    for name in sorted(failed & _NOT_MEANT.keys()):
        print(f"  not meant for pulse  {name}: {_NOT_MEANT[name]}")
    unexpected = sorted(failed - _NOT_MEANT.keys())
    for name in unexpected:
        print(f"  FAILED               {name}")
    return 1 if unexpected else 0


def _name(test: Any) -> str:
    test = getattr(test, "test_case", test)  # of a subTest
    return ".".join(test.id().split(".")[-2:])


if __name__ == "__main__":
    sys.exit(main())
