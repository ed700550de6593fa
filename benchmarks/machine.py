"""The machine and the versions: figures mean nothing without them."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.interpreters import inspect

_PACKAGES = {"grpcio": "grpcio", "asyncpg": "asyncpg", "uvloop": "uvloop", "pulse": "pulse-jobs"}
_SETTINGS = ("server_version", "fsync", "synchronous_commit", "shared_buffers", "max_wal_size")


async def describe(dsn: str, plain: Path | None = None) -> dict[str, Any]:
    """Describe machine and versions, by name. `plain`: a second interpreter for some figures."""
    connection = await asyncpg.connect(dsn)
    try:
        settings = {name: await connection.fetchval(f"SHOW {name}") for name in _SETTINGS}
    finally:
        await connection.close()
    interpreter = inspect(sys.executable)
    build = interpreter.build if interpreter else None
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "memory_gib": _memory_gib(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "python_build": str(build) if build else "build unknown",
        "has_pgo": build.has_pgo if build else None,
        "plain_python": str(inspect(plain)) if plain else "",
        "postgres": settings,
        "packages": {name: _version(package) for name, package in _PACKAGES.items()},
    }


def line(about: dict[str, Any]) -> str:
    """The same as one sentence."""
    settings, packages = about["postgres"], about["packages"]
    processor = f" ({about['processor']})" if about["processor"] else ""
    build = f" ({about['python_build']})" if about.get("python_build") else ""
    plain = f", and {about['plain_python']} where a figure says so" if about.get("plain_python") else ""
    return (
        f"{about['cores']} cores, {about['architecture']}{processor}, {about['memory_gib']} GiB, "
        f"{about['kernel']}; Python {about['python']}{build}{plain}; PostgreSQL {settings['server_version']} "
        f"(fsync {settings['fsync']}, synchronous_commit {settings['synchronous_commit']}, "
        f"shared_buffers {settings['shared_buffers']}, max_wal_size {settings['max_wal_size']}); "
        + ", ".join(f"{name} {version}" for name, version in packages.items())
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
    for entry in text.splitlines():
        name, _, value = entry.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return ""


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
