"""How a payload looks to people."""

from __future__ import annotations

import json

from pulse_cli.text import printable
from pulse_cli.views.shapes import payload_shape


def payload_text(payload: bytes) -> str:
    """Return the payload for people: JSON indented, other text as it is, bytes in hexadecimal."""
    shape = payload_shape(payload)
    if shape["payload_base64"] is None:
        return printable.in_json(json.dumps(shape["payload"], ensure_ascii=False, indent=2))
    try:
        return printable.lines(payload.decode())
    except UnicodeDecodeError:
        shown = payload[:256]
        more = f" … ({len(payload)} bytes)" if len(payload) > len(shown) else ""
        return shown.hex(" ") + more
