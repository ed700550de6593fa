"""The operator's settings: one table of options, read from the environment and flags. Flags win.

It imports `database`, `embedded`, `access` and `base`. Start with `options.py`.
"""

from __future__ import annotations

from pulse_server.settings.options import OPTIONS, BadSettings, Option, parse_address, parse_duration
from pulse_server.settings.reading import Retention, Settings, TlsFiles, read_settings

__all__ = [
    "OPTIONS",
    "BadSettings",
    "Option",
    "Retention",
    "Settings",
    "TlsFiles",
    "parse_address",
    "parse_duration",
    "read_settings",
]
