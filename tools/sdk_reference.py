"""Makes docs/reference/sdk.md from the public names of `pulse`, their signatures and their docstrings."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulse
import pulse.errors
import pulse.sql
from pulse import (
    client,
    enqueues,
    overview,
    schedule_definitions,
    schedules,
    topic_settings,
    topics,
    workflows,
)
from pulse.decorators import Registered, Registering
from pulse.handlers import context, registry
from pulse.handlers import workflows as workflows_of_handlers
from pulse.jobs import models, selections, submissions, verbs
from pulse.wire import endpoint
from pulse.worker import outcomes
from tools import sdk_source as source
from tools.markdown import code, generated_from, prose, table
from tools.sdk_sections import SECTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "sdk.md"

INTRODUCTION = """\
# The SDK: `pulse`

Everything that `import pulse` offers, with its signature and its effect. A name that is not on this page is
not meant for applications and may change. [The tutorial](../tutorial.md) shows most of it at work;
[`examples/`](../../examples/) has programs to start from. `p` stands for a `Pulse`.

"""

# What applications construct themselves. The SDK constructs the rest; their constructors are private.
CONSTRUCTED = {
    *("Pulse", "Router", "Backoff", "Rate", "Unique", "JobItem", "Context"),
    *("Retry", "Snooze", "Discard"),
    *("At", "After", "Every", "Cron"),
}
# The blocking twin of each class, whose parameters are the same.
TWINS: dict[str, type] = {
    "SyncPulse": pulse.Pulse,
    "SyncJob": pulse.Job,
    "SyncJobHandle": pulse.JobHandle,
    "SyncRouter": pulse.Router,
    "SyncSchedules": pulse.Schedules,
    "SyncWorkflow": pulse.Workflow,
    "SyncWorkflowHandle": pulse.WorkflowHandle,
    "SyncWorkflows": pulse.Workflows,
}
# The classes that a `Pulse` consists of, and what each is about.
PARTS = {
    enqueues.EnqueueVerbs: "Verbs that enqueue",
    workflows.WorkflowVerbs: "Verbs for workflows",
    verbs.JobVerbs: "Verbs for jobs",
    enqueues.GatherVerbs: "Verbs for waiting",
    selections.SelectionVerbs: "Verbs for many jobs",
    verbs.UndoVerbs: "Verbs for undoing",
    verbs.ExportVerbs: "Verbs for exports",
    client.WorkVerbs: "Verbs for work: handlers, and running them",
    registry.AroundVerbs: "Verbs for what surrounds handlers",
    outcomes.VerdictVerbs: "Verbs for what becomes of jobs",
    schedules.ScheduleVerbs: "Verbs for schedules",
    topics.DispatchVerbs: "Verbs for dispatch",
    topics.TopicVerbs: "Verbs for settings of topics, limits and lanes",
    verbs.StepVerbs: "Verbs for steps and signals",
    overview.OverviewVerbs: "Verbs for the overview",
    overview.AuditVerbs: "The verb for the audit",
    overview.AccessVerbs: "Verbs for access",
    pulse.Pulse: "Closing",
}

ALIASES = {
    "CatchUp": schedule_definitions,
    "Overlap": schedule_definitions,
    "OnConflict": models,
    "UniqueWhile": models,
    "When": workflows_of_handlers,
}


def page() -> str:
    """Return the page as it should be. Raises LookupError if a public name has no place on it."""
    errors = [*_errors()]
    named = {name for section in SECTIONS for name in section.names} | {error.__name__ for error in errors}
    if named != set(pulse.__all__):
        raise LookupError(f"tools/sdk_sections.py and pulse.__all__ differ in {named ^ set(pulse.__all__)}")
    parts = [generated_from("src/pulse"), INTRODUCTION]
    for section in SECTIONS:
        parts.append(f"## {section.title}\n\n")
        parts.append(f"{section.introduction}\n\n" if section.introduction else "")
        parts += [_entry(name) for name in section.names]
    parts += [_section_of_sql(), _section_of_errors(errors), _section_of_types()]
    return "".join(parts).rstrip() + "\n"


def _entry(name: str) -> str:
    value = getattr(pulse, name)
    heading = f"### `{name}`\n\n"
    if name in ALIASES:
        known = source.alias(ALIASES[name], name)
        return f"{heading}{_block(known.type)}{known.meaning}\n\n"
    if name == "INJECTED":
        return f"{heading}{source.alias(context, name).meaning}\n\n"
    if inspect.isfunction(value):
        return f"{heading}{_block(source.signature(name, value))}{prose(value.__doc__)}\n\n"
    return heading + "".join(_class(name, value))


def _class(name: str, cls: Any) -> Iterator[str]:
    if name in CONSTRUCTED:
        yield _block(source.signature(name, cls).removesuffix(" -> None"))
    for part in reversed(_parts_of(cls)):
        if part in (cls, Registered):
            yield f"{prose(part.__doc__)}\n\n"
    if name == "SyncContext":
        return  # it has the members of Context
    if name in TWINS:
        yield _twin(name, cls)
    elif name == "Pulse":
        yield _without_first_paragraph(cls.__init__.__doc__)
        for part, title in PARTS.items():
            yield f"#### {title}\n\n"
            yield _without_first_paragraph(part.__doc__) if part is not cls else ""
            yield _properties([part], [])
            for each in _shared_by(part):
                yield from _methods("p", each, "#####")
    else:
        attributes = [] if name in CONSTRUCTED else [*source.attributes(cls)]
        yield _properties(_parts_of(cls), attributes)
        for part in _parts_of(cls):
            yield from _methods(name, part, "####")


def _parts_of(cls: type) -> list[type]:
    """Return the classes of the SDK that this one consists of, the most general one first."""
    return [part for part in reversed(cls.__mro__) if part.__module__.startswith("pulse.")]


def _properties(parts: list[type], attributes: list[source.Attribute]) -> str:
    """Return the table of what can be read: the attributes, and what is computed."""
    for member in (member for part in parts for member in source.members(part)):
        if member.is_property:
            returned, about = source.returned_by(member.function), prose(member.function.__doc__)
            attributes.append(source.Attribute(member.name, returned, about))
    if not attributes:
        return ""
    return table(["", "type", ""], [[code(a.name), code(a.type), a.meaning] for a in attributes]) + "\n"


def _methods(subject: str, cls: type, level: str) -> Iterator[str]:
    for member in source.members(cls):
        if not member.is_property:
            name = f"{subject}.{member.name}"
            text = source.signature(name, member.function)
            yield f"{level} `{name}`\n\n{_block(text)}{prose(member.function.__doc__)}\n\n"


def _twin(name: str, cls: Any) -> str:
    """Return the table of a blocking class. Raises LookupError if it takes other parameters than its twin."""
    twin = TWINS[name]
    order = [member.name for part in _ordered_parts(twin) for member in source.members(part)]
    members = {member.name: member for part in _parts_of(cls) for member in source.members(part)}
    rows = []
    for member in sorted(members.values(), key=lambda member: order.index(member.name)):
        same = inspect.getattr_static(twin, member.name)
        if not member.is_property and _of_twin(source.parameters_of(member.function)) != (
            source.parameters_of(same)
        ):
            raise LookupError(f"{name}.{member.name} takes other parameters than {twin.__name__}'s")
        about = prose(member.function.__doc__).split("\n\n")[0]
        called = member.name if member.is_property else f"{member.name}(…)"
        rows.append([code(called), code(source.returned_by(member.function)), about])
    return f"Parameters are those of `{twin.__name__}`.\n\n{table(['', 'gives', ''], rows)}\n"


def _of_twin(parameters: list[str]) -> list[str]:
    return [
        parameter.replace("SyncRouter", "Router").replace("SyncJobHandle", "JobHandle")
        for parameter in parameters
    ]


def _ordered_parts(cls: type) -> list[type]:
    return [each for part in PARTS for each in _shared_by(part)] if cls is pulse.Pulse else _parts_of(cls)


def _shared_by(part: type) -> list[type]:
    """Return the class and, before it, what it shares with routers."""
    return [Registering, part] if Registering in part.__bases__ else [part]


def _without_first_paragraph(docstring: str | None) -> str:
    _, _, rest = prose(docstring).partition("\n\n")
    return f"{rest}\n\n" if rest else ""


def _errors() -> Iterator[type[pulse.PulseError]]:
    for name in pulse.__all__:
        value = getattr(pulse, name)
        if isinstance(value, type) and issubclass(value, pulse.PulseError):
            yield value


def _section_of_sql() -> str:
    parts = [
        "## In your transaction\n\n`pulse.sql` needs a connection to the database of `pulsed`. "
        "[How to use it](../how-to/transactions.md), and `Context.complete`.\n\n"
    ]
    for name in pulse.sql.__all__:
        verb = getattr(pulse.sql, name)
        called = f"pulse.sql.{name}"
        parts.append(f"### `{called}`\n\n{_block(source.signature(called, verb))}{prose(verb.__doc__)}\n\n")
    return "".join(parts)


def _section_of_errors(errors: list[type[pulse.PulseError]]) -> str:
    tree, *rest = (pulse.errors.__doc__ or "").split("\n\n")[1:]
    rows = [[code(error.__name__), code(error.code), prose(error.__doc__)] for error in errors]
    return (
        f"## Errors\n\nWhat the verbs raise, as one tree:\n\n{_block(tree)}"
        f"{' '.join(' '.join(rest).split())}\n\n"
        "The text of an error is a sentence for people, also in `message`; `code` is the name of the gRPC "
        "status.\n\n" + table(["error", "`code`", ""], rows) + "\n"
    )


def _section_of_types() -> str:
    aliases = [
        *(source.alias(schedule_definitions, "Spec"), source.alias(topic_settings, "Keep")),
        *(source.alias(endpoint, "File"), source.alias(endpoint, "ClientCertificate")),
    ]
    rows = [[code(alias.name), code(alias.type)] for alias in aliases]
    keys = ", ".join(map(code, submissions.EnqueueOptions.__annotations__))
    entries = ", ".join(map(code, topic_settings.ENTRIES))
    rows.append(["`TopicEntries`", f"keyword arguments of `set_topic`: {entries}"])
    rows.append(["`EnqueueOptions`", f"keyword arguments of `enqueue`: {keys}"])
    rows.append(
        [
            "`JobDecorator`, `SyncJobDecorator`",
            "what `p.job(…)` returns, and what makes a `Job` of the function",
        ]
    )
    return "## Names in signatures\n\nThey are not exported; they name types of parameters.\n\n" + table(
        ["", ""], rows
    )


def _block(text: str) -> str:
    return f"```\n{text}\n```\n\n"
