"""A Django project with the backend of pulse. Its database is that of pulsed."""

import os

import django

_BACKPORT = [] if django.VERSION >= (6, 0) else ["django_tasks"]

SECRET_KEY = "not a secret"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "tests.system.tasks_site.urls"
STATIC_URL = "static/"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    *_BACKPORT,
    "pulse.django",
    "tests.system.tasks_site",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    # Its host and user are in PGHOST and the like.
    "default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"]},
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
PULSE = {"ADDRESS": os.environ["PROJECT_PULSE"], "DASHBOARD": "https://pulse.example/ui/"}
_BACKEND = "pulse.django.tasks_backend.PulseBackend"
TASKS = {
    "default": {"BACKEND": _BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": {"max_attempts": 1}},
    "on_commit": {"BACKEND": _BACKEND, "OPTIONS": {"ENQUEUE": "on_commit"}},
    "transaction": {"BACKEND": _BACKEND, "OPTIONS": {"ENQUEUE": "transaction"}},
    "bulk": {"BACKEND": _BACKEND, "QUEUES": ["bulk"], "OPTIONS": {"max_attempts": 2}},
}
