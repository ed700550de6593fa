"""Makes docs/reference/settings.md from the tables of options, and from the settings of topics."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from pulse.topic_settings import ENTRIES, Declares, Entry, Flag, group_of
from pulse_cli.connection import DEFAULT_ADDRESS, FIELDS
from pulse_server.settings import OPTIONS, Option
from tools.markdown import code, generated_from, table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"

INTRODUCTION = """\
# Settings

Every setting with its default. [Settings by
concern](../operations/set-up.md#settings-by-concern) explains what to choose.

## The server: `pulsed`

From the environment, or as a flag; the flag wins. A secret has no flag, since every user of
the machine can read a command line. An empty value counts as unset. Durations are written `500ms`, `30s`,
`5m`, `1h` or `7d`, switches `on` or `off`. `pulsed check` lists every setting with where it comes from, and
reports mistakes in them; `pulsed --help` prints this table.

"""
TITLES = {
    "database": "The database",
    "doors": "Where it listens, and who gets in",
    "running": "How it runs",
    "leases": "Leases",
    "runs": "How jobs run, unless their topic has settings of its own",
    "retention": "How long finished jobs are kept",
}
CLIENTS = """\
## Clients: the SDK and `pulse`

The SDK takes what its client is made with (`Pulse(address, user=…)`), else the variable. `pulse`, the command
line, takes the flag, else the variable, else what `pulse save creds` has saved
([more](../cli.md#connection)). The address is `{address}` unless it is set.

"""
TOPICS = """\
## The settings of a topic

Each is decided on its own: what an operator has set wins over what the code of workers declares, and that
wins over the settings of the server. An operator sets them with `pulse topics set TOPIC`, with
`p.set_topic(topic, …)`, which takes the names below, or on the topic's page of the dashboard. `default` in
place of a value, or a reset, hands a setting back. `pulse topics show TOPIC` lists the value in force of
each, and who decided it.
[Limits](../how-to/limits-tenants-and-fairness.md), [retries and time limits](../handlers.md) and
[retention](../how-to/keep-history.md) explain what to choose.

"""
GROUPS = {
    "limits": "Limits: what runs at once, what starts, and whose turn it is",
    "runs": "Runs: attempts, their delays, and their time",
    "retention": "Retention: how long finished jobs are kept",
}
# Which workers decide if no operator has set the entry.
DECLARED = {
    Declares.CONNECTED: "the strictest of the connected workers",
    Declares.LAST: "the last worker that declared it",
}
# Where no value is stricter than another.
NEWEST = "the newest of the connected workers"
# The options of a handler that have another name than the setting, or none.
OPTIONS_OF_HANDLERS = {"backoff": "retry", "attempt_timeout": "timeout", "max_crashes": ""}
# By the name that a field has in the CLI's table: the parameter of `Pulse`, and its purpose.
PARAMETERS = {
    "address": (
        "address",
        "where `pulsed` is: `host`, `host:port` or `:port`; several servers with commas between them",
    ),
    "user": ("user", "the user; requires a password"),
    "password": ("password", "never a flag: `--password-stdin` reads it from standard input"),
    "tls": ("tls", "use TLS with the authorities that this machine trusts"),
    "tls_ca": ("ca", "PEM file of the authority that signed the server's certificate; turns TLS on"),
    "tls_cert": ("cert", "PEM file of one's own certificate, for mutual TLS; turns TLS on"),
    "tls_key": ("cert", "PEM file of its key, if it is not in the same file"),
    "tls_server_name": ("server_name", "the name that the server's certificate has to bear; turns TLS on"),
    "context": ("", "which of the saved contexts to use; the command line only"),
}
OTHERS = """\

## The dashboard: `pulse-ui`

Its settings (`PULSE_UI_…`) are in [The dashboard](../dashboard.md#settings); how it reaches `pulsed` is set
as for any client.

## Traces

OpenTelemetry's own variables (`OTEL_…`) count for `pulsed` and for applications:
[Traces](../operations/watch.md#traces).
"""


def page() -> str:
    """Return the page as it should be. Raises LookupError if a setting is not listed."""
    if unknown := {option.group for option in OPTIONS} ^ TITLES.keys() | FIELDS.keys() ^ PARAMETERS.keys():
        raise LookupError(f"tools/settings_reference.py differs from the settings in {unknown}")
    sources = "pulse_server.settings and pulse_cli.connection"
    return "".join(
        [
            generated_from(sources),
            INTRODUCTION,
            *_server(),
            TOPICS,
            *_topics(),
            CLIENTS.format(address=DEFAULT_ADDRESS),
            _clients(),
            OTHERS,
        ]
    )


def _server() -> Iterator[str]:
    for group, options in groupby(OPTIONS, key=lambda option: option.group):
        rows = [_row(option) for option in options]
        yield f"### {TITLES[group]}\n\n{table(['variable', 'flag', 'default', ''], rows)}\n"


def _topics() -> Iterator[str]:
    if unknown := {entry.group for entry in ENTRIES.values()} ^ GROUPS.keys():
        raise LookupError(f"tools/settings_reference.py differs from the settings of topics in {unknown}")
    for group, title in GROUPS.items():
        rows = [_entry(entry) for entry in group_of(group)]
        columns = ["setting", "option of `topics set`", "", "option of a handler", "of the code, decides"]
        yield f"### {title}\n\n{table(columns, rows)}\n"


def _entry(entry: Entry) -> list[str]:
    if isinstance(entry.kind, Flag):
        option = code(f"{entry.option}/{entry.option.replace('--', '--no-', 1)}")
    else:
        option = code(f"{entry.option} {entry.example}")
    of_handler = OPTIONS_OF_HANDLERS.get(entry.name, entry.name)
    if entry.declares is Declares.NONE or not of_handler:
        return [code(entry.name), option, entry.help, "", "–"]
    decides = NEWEST if entry.name in ("pool", "aging") else DECLARED[entry.declares]
    return [code(entry.name), option, entry.help, code(of_handler), decides]


def _row(option: Option) -> list[str]:
    flag = "none: a secret" if option.flag is None else code(f"{option.flag} {option.metavar}")
    return [code(option.variable), flag, code(option.default) or "none", option.help]


def _clients() -> str:
    rows = [
        [code(field.variable or ""), code(parameter), code(field.flag), about]
        for field in FIELDS.values()
        for parameter, about in [PARAMETERS[field.name]]
    ]
    about = "the name under which schedules are declared in code; the SDK only"
    rows.append([code("PULSE_APPLICATION"), code("application"), "", about])
    return table(["variable", "parameter of `Pulse`", "flag of `pulse`", ""], rows)
