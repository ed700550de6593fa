"""The services and their RPCs run over the store in memory, where neither asyncpg nor bcrypt is installed."""

from __future__ import annotations

import subprocess
import sys

IMPORTS = """
import sys
from importlib import import_module
from pkgutil import iter_modules

BLOCKED = ("asyncpg", "bcrypt", "starlette", "uvloop")
for name in BLOCKED:
    sys.modules[name] = None  # an import of it fails

for package in ("dispatch", "domain", "memory", "repos", "service"):
    found = import_module(f"pulse_server.{package}")
    for module in iter_modules(found.__path__):
        import_module(f"pulse_server.{package}.{module.name}")
for rpcs in "dispatch jobs limits policies schedules selections steps work workflows".split():
    import_module(f"pulse_server.transport.grpc.{rpcs}")
print(sorted(name for name in sys.modules if name.startswith(("pulse_server.postgres", "pulse_server.app"))))
"""


def test_services_and_rpcs_over_memory_need_no_driver_and_no_bcrypt() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "[]\n"
