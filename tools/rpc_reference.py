"""Makes docs/reference/rpcs.md from the proto, the table of permissions and the errors of the server."""

import re
from pathlib import Path

from pulse_server.access.users import Role
from pulse_server.base import bounds, errors, tuning
from pulse_server.doors.boundary import SERVICE, status_of
from pulse_server.doors.callers import ROLES_THAT_MAY
from tools.markdown import code, generated_from, table
from tools.proto_source import Contract, Field, Message, Rpc, read_contract
from tools.rpc_notes import NOTES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "rpcs.md"

INTRODUCTION = f"""\
# The RPCs: `{SERVICE}`

The gRPC API of `pulsed`, for clients in other languages, and as the reference of the calls that the
[SDK](sdk.md) makes. The contract itself is
[`pulse.proto`](../../proto/pulse/v1/pulse.proto); with `PULSE_GRPC_REFLECTION=on` tools such as grpcurl read
it from the server.

- **The caller** is identified by the metadata `authorization: Basic …` of each call, if the server has users
  ([Who gets in](../operations/set-up.md#who-gets-in)). Each RPC below lists the roles that may call it.
- **original** marks what was in the first contract. It never changes; a client may leave out
  everything that was added since.
- **Every call of a worker** carries its claim: job, worker and attempt. If the claim no longer matches the
  job, the call has no effect ([the life of a job](../job-lifecycle.md)).
- **Repeat unanswered calls**: submits with the same `job_id`, reports, heartbeats and releases unchanged.
- A message may have {tuning.MAX_MESSAGE_BYTES >> 20} MiB, a payload {bounds.MAX_PAYLOAD_BYTES >> 20} MiB.
  gRPC refuses a larger message with RESOURCE_EXHAUSTED: send less at a time.
  `Timestamp` and `Duration` are the types of `google.protobuf`.
- `grpc.health.v1.Health` is served as well, without login.

## Errors

The message of a status is a sentence for people. Statuses of `pulsed` itself have `pulse-answer` among
their trailing metadata; gRPC's own have not. Any call may return these:

"""
# Errors of some calls only: they are documented with those calls.
OF_SOME_CALLS = ("NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION")


def page() -> str:
    """Return the page as it should be. Raises LookupError if an RPC has no note, or a note no RPC."""
    contract = read_contract()
    homes = {name: rpc.name for rpc in contract.rpcs for name in (rpc.request, rpc.response)}
    if unknown := {rpc.name for rpc in contract.rpcs} ^ NOTES.keys():
        raise LookupError(f"tools/rpc_notes.py and the proto differ in {', '.join(sorted(unknown))}")
    parts = [generated_from("proto/, src/pulse_server and tools/rpc_notes.py"), INTRODUCTION, _errors()]
    for group in contract.groups:
        title, _, about = (part.strip() for part in re.split(r"([.:;])", group.comment, maxsplit=1))
        parts.append(f"## {title}\n\n{_paragraph(_sentence(about))}")
        parts += [_rpc(rpc, contract, homes) for rpc in group.rpcs]
    parts.append("## Messages\n\nWhat requests and answers are made of.\n\n")
    for name, message in contract.messages.items():
        if name not in homes:
            parts.append(f"### `{name}`\n\n{_paragraph(message.comment)}{_fields(message, homes)}")
    return "".join(parts).rstrip() + "\n"


def _errors() -> str:
    tree = (errors.__doc__ or "").split("PulseError\n", 1)[1]
    meanings = dict(re.findall(r"[├└]── (\w+) +(.+)", tree))
    rows: dict[str, list[str]] = {}
    for name, meaning in meanings.items():
        kind: type[errors.PulseError] = getattr(errors, name)
        rows.setdefault(status_of(kind.__new__(kind)).name, []).append(meaning)
    rows["INTERNAL"] = ["an internal error; the log of the server has the details"]
    return (
        table(
            ["code", "when"],
            [[code(name), ". Or: ".join(said)] for name, said in rows.items() if name not in OF_SOME_CALLS],
        )
        + f"\n{', '.join(map(code, OF_SOME_CALLS))}: documented with the calls that return them.\n\n"
    )


def _rpc(rpc: Rpc, contract: Contract, homes: dict[str, str]) -> str:
    note = NOTES[rpc.name]
    takes, gives = ("stream " if flag else "" for flag in (rpc.takes_stream, rpc.gives_stream))
    about = [note.text, _sentence(rpc.comment), "Original." if rpc.is_original else ""]
    roles = [role for role in Role if role in ROLES_THAT_MAY[f"/{SERVICE}/{rpc.name}"]]
    text = (
        f"### `{rpc.name}`\n\n```\n{rpc.name}({takes}{rpc.request}) returns ({gives}{rpc.response})\n```\n\n"
        f"{' '.join(filter(None, about))}\n\nRoles: {', '.join(roles)}.\n\n"
    )
    text += "".join(f"- `{refused}`: {when}.\n" for refused, when in note.refusals)
    text += "\n" if note.refusals else ""
    for message in (contract.messages[rpc.request], contract.messages[rpc.response]):
        if message.fields:
            text += f"**`{message.name}`** {message.comment}".rstrip() + f"\n\n{_fields(message, homes)}"
        elif message.comment:
            text += f"{message.comment}\n\n"
    return text


def _fields(message: Message, homes: dict[str, str]) -> str:
    return table(["field", "type", "no.", ""], [_row(field, homes) for field in message.fields]) + "\n"


def _row(field: Field, homes: dict[str, str]) -> list[str]:
    kind = code(field.type)
    if field.message:
        kind = f"[{kind}](#{homes.get(field.message, field.message).lower()})"
    choice = f"one of `{field.choice}`" if field.choice else ""
    return [code(field.name), kind, str(field.number), "; ".join(filter(None, [choice, field.comment]))]


def _sentence(comment: str) -> str:
    """Return a comment as a sentence of its own."""
    return f"{comment[0].upper()}{comment[1:].rstrip('.')}." if comment else ""


def _paragraph(text: str) -> str:
    return f"{text}\n\n" if text else ""
