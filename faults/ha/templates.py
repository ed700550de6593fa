"""Fills in the templates of deploy/ha for machines that are addresses of this one.

Every address in 127.0.0.0/8 is this machine, so the ports can be the very ones of the recipe.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from string import Template

RECIPE = Path(__file__).resolve().parents[2] / "deploy" / "ha"
PORTS = {"etcd": 2379, "etcd of the others": 2380, "Patroni": 8008, "Postgres": 5432}


def assignments(text: str) -> dict[str, str]:
    """The lines NAME=value of a file of settings."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def filled(template: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The settings that a template of the recipe makes of these variables."""
    return assignments(Template((RECIPE / template).read_text(encoding="utf-8")).substitute(variables))


def variables(node: str, addresses: Mapping[str, str], directory: Path, postgres: Path) -> dict[str, str]:
    """What node.example says, for a machine among these whose data is in the directory."""
    return {
        "NODE": node,
        "ADDRESS": addresses[node],
        "ETCD_MEMBERS": ",".join(f"{name}=http://{address}:2380" for name, address in addresses.items()),
        "ETCD_HOSTS": ",".join(f"{address}:2379" for address in addresses.values()),
        "ETCD_DATA": str(directory / "etcd"),
        "POSTGRES_DATA": str(directory / "postgres"),
        "POSTGRES_PROGRAMS": str(postgres),
    }


def new_secrets() -> dict[str, str]:
    """What secrets.example asks for, made up."""
    asked = assignments((RECIPE / "secrets.example").read_text(encoding="utf-8"))
    return {name: secrets.token_urlsafe(16) for name in asked}


def patroni_configuration(directory: Path) -> Path:
    """Write patroni.yml unchanged, and beside it the settings that differ on this machine.

    Returns the directory of both, which Patroni reads in the order of their names.
    """
    configuration = directory / "patroni"
    configuration.mkdir()
    (configuration / "1-recipe.yml").write_text((RECIPE / "patroni.yml").read_text(encoding="utf-8"))
    here = {
        "postgresql": {"parameters": {"unix_socket_directories": str(directory)}},
        "watchdog": {"mode": "off"},  # it would reset this machine
    }
    (configuration / "2-here.yml").write_text(json.dumps(here))  # which is YAML as well
    return configuration
