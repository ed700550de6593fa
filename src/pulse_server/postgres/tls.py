"""TLS to the database: settings that the driver takes as arguments and not in the URL."""

from __future__ import annotations

import ssl
from typing import Any

from pulse_server.settings.database_url import DatabaseUrl


def tls_arguments(target: DatabaseUrl) -> dict[str, Any]:
    """The arguments for one connection. Read again for each, so that a renewed certificate is
    used."""
    arguments: dict[str, Any] = {"direct_tls": True} if target.begins_with_tls else {}
    if target.trusts_system:
        arguments["ssl"] = context = ssl.create_default_context()
        context.set_alpn_protocols(["postgresql"])
        if target.certificate is not None:
            certificate = target.certificate
            context.load_cert_chain(certificate.file, certificate.key, lambda: certificate.password)
    return arguments
