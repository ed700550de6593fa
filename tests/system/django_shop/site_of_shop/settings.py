"""The settings of the project of the tests. Without PGDATABASE its database is a file of SQLite."""

import json
import os
from pathlib import Path

SECRET_KEY = "not a secret"
DEBUG = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "site_of_shop.urls"
WSGI_APPLICATION = "site_of_shop.wsgi.application"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["pulse.django", "orders"]
OF_CONNECTIONS = json.loads(os.environ.get("SHOP_CONNECTIONS", "{}"))
if name := os.environ.get("PGDATABASE"):
    DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": name, **OF_CONNECTIONS}}
else:
    file = Path(os.environ["SHOP_DIRECTORY"], "shop.sqlite3")
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": file, **OF_CONNECTIONS}}
PULSE = {"DEFAULTS": {"max_attempts": 2}, **json.loads(os.environ.get("SHOP_PULSE", "{}"))}
