"""Makes docs/cli.md from the commands themselves. Runs in .venv, where the CLI is installed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click

from pulse_cli.connection import FIELDS, TEXTS
from pulse_cli.declaring import Command, Group
from pulse_cli.inputs import CONNECTION_OPTIONS, OUTPUT_OPTIONS
from pulse_cli.program import pulse
from tools.cli_fields import PLAIN
from tools.cli_shapes import SHAPES
from tools.markdown import generated_from

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

INTRODUCTION = """\
# The command line: `pulse`

[Install](install.md) it with the extra `cli`: `pip install '.[cli]'` in a clone. Every command has `--help`.

## Connection

The order of precedence is flag, environment, file, default. `pulse config show` shows each value and its
source.

{settings}

The file is `$XDG_CONFIG_HOME/pulse/config.json`, else `~/.config/pulse/config.json`. `pulse save creds`
writes it, with mode 0600 in a directory with mode 0700; a file that others can read causes a warning. It
holds named contexts:

```json
{{
  "current": "production",
  "contexts": {{
    "production": {{"address": "pulse.example:50051", "user": "ops", "password": "…", "tls": true}},
    "default": {{"address": "localhost:50051"}}
  }}
}}
```

The keys of a context are {keys} and `tls`.
`--context` or `PULSE_CONTEXT` names the one to use, else `current` does.

A password is prompted for, read from standard input (`--password-stdin`), or taken from `PULSE_PASSWORD` or
the file. It is never an argument. A password saved for one user is not sent for another, and credentials
saved with one address are not sent to another (`--addr`, `PULSE_ADDR`): give them again, or save a context
for that address. `tls_ca`, `tls_cert` and `tls_server_name` turn TLS on; `--no-tls` turns it off
regardless of saved settings.

## Output

`--output table`, the default, is for people: aligned columns that fit the terminal, times relative to now.
In a pipe it is the same text without colors, and nothing is cut; of `submit` it is the id alone. Times are
relative to the server's clock. `NO_COLOR` is honored.

`--output json` is for programs: one array for a list and for actions on several jobs or schedules,
one object otherwise;
`jobs tail` prints an object on each line.
Keys are only ever added. Times are ISO 8601 in UTC, durations are written like `1h30m`, missing values are
`null`. [Below](#shapes-of-json) is the shape of each object.

`--output plain` is for `cut` and `awk`: no header, one line per object, its fields separated by tabs. A
single object has one line per field, with its key first. Tabs and line breaks inside a field are written as
`\\t` and `\\n`, missing values are empty. The fields of a line are these keys of the JSON, in this order:

{fields}

Results go to standard output. Hints, warnings, questions and progress go to standard error.

Durations are written as `90s`, `5m`, `2h`, `1h30m`, `7d`; times as `2030-01-31T09:00`, with a zone or in the
machine's own. `--since` and `--before` take both: `2h` is two hours ago.

Instead of a job's id, a prefix may be given that no other id shares. Ids start with their time of creation,
so ids of jobs submitted together differ further back.

## Exit codes

| code | meaning |
|---|---|
| 0 | done; with `submit --wait`: the job was completed |
| 1 | refused by the server, or the job failed |
| 2 | the command line, a value or the configuration cannot be used |
| 3 | not found |
| 4 | not authenticated, or not permitted |
| 5 | no server, or no database behind it |
| 130 | interrupted with Ctrl-C; `top` exits with 0 |

An error is a sentence on standard error. `PULSE_DEBUG=1` adds the traceback of an unexpected one.

## Options that every command takes

They may be given before or after the command. Commands that do not connect take `--output` only.

"""


def page() -> str:
    """Return the page as it should be."""
    keys = ", ".join(f"`{name}`" for name in TEXTS)
    fields = "\n".join(
        f"- {what}: {', '.join(f'`{name}`' for name in names)}" for what, names in PLAIN.items()
    )
    introduction = INTRODUCTION.format(settings="\n".join(_settings()), keys=keys, fields=fields)
    parts = [generated_from("src/pulse_cli"), introduction]
    with click.Context(pulse, info_name="pulse") as ctx:
        parts += [_options([*OUTPUT_OPTIONS, *CONNECTION_OPTIONS], ctx), "\n", *_commands(pulse, ctx)]
    parts += ["## Shapes of JSON\n\n", *_shapes()]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).rstrip() + "\n"


def _settings() -> Iterator[str]:
    yield "| setting | flag | variable |"
    yield "|---|---|---|"
    for field in FIELDS.values():
        yield f"| {field.name} | `{field.flag}` | {f'`{field.variable}`' if field.variable else ''} |"


def _commands(group: Group, ctx: click.Context) -> Iterator[str]:
    for name, command in group.commands.items():
        assert isinstance(command, Group | Command)
        with click.Context(command, info_name=name, parent=ctx) as inner:
            yield _section(command, inner)
            if isinstance(command, Group):
                yield from _commands(command, inner)


def _section(command: Group | Command, ctx: click.Context) -> str:
    level = "##" if ctx.parent is not None and ctx.parent.parent is None else "###"
    text = f"{level} `{ctx.command_path}`\n\n{_prose(command.help or '')}\n\n"
    if isinstance(command, Group):
        return text
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    text += f"```\n{usage}\n```\n\n"
    text += _options([param for param in command.own_params(ctx) if "--help" not in param.opts], ctx)
    return text + "\n```console\n" + "\n".join(f"$ {line}" for line in command.examples) + "\n```\n\n"


def _options(params: list[click.Parameter] | list[click.Option], ctx: click.Context) -> str:
    records = [
        record
        for param in params
        if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None
    ]
    if not records:
        return ""
    rows = "".join(f"| `{_cell(flag)}` | {_cell(text)} |\n" for flag, text in records)
    return f"| option | |\n|---|---|\n{rows}"


def _shapes() -> Iterator[str]:
    for what, shape in SHAPES.items():
        yield f"{what}:\n\n```json\n{json.dumps(shape, indent=2, ensure_ascii=False)}\n```\n\n"


def _cell(text: str) -> str:
    text = re.sub(r" *\[x>=1\]|; x>=1", "", text)  # that a count is not negative goes without saying
    return text.replace("|", "\\|").replace("\n", " ")


def _prose(text: str) -> str:
    paragraphs = text.replace("\b", "").strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
