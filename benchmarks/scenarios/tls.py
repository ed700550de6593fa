"""The cost of TLS: a drain with and without it, in turn."""

from __future__ import annotations

import sys

from benchmarks.figures import Figure
from benchmarks.scenarios.guarded import compare_drains
from benchmarks.stand import Stand


async def measure(stand: Stand) -> list[Figure]:
    try:
        import trustme
    except ImportError:
        print("tls is left out: it needs trustme, which `python3 dev.py setup` installs.", file=sys.stderr)
        return []
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    ca, chain, key = (stand.folder / name for name in ("ca.pem", "chain.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    certificate.private_key_pem.write_to_path(key)
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    settings = {"PULSE_TLS_CERT": str(chain), "PULSE_TLS_KEY": str(key)}
    return await compare_drains(stand, "tls", "TLS", settings, {"PULSE_TLS_CA": str(ca)})
