"""Writes the table of roles in docs/operations.md from the permissions of the server."""

from pathlib import Path

from pulse_server.access.users import Role
from pulse_server.transport.grpc.boundary import SERVICE
from pulse_server.transport.grpc.permissions import ROLES_THAT_MAY
from tools.markdown import code, table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "operations.md"
_BEGIN, _END = "<!-- roles -->\n", "<!-- end of roles -->\n"


def page() -> str:
    """Return the page with its table as the permissions are now."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}{roles_table()}{_END}{after}"


def roles_table() -> str:
    """Return a row for all methods that the same roles may call, those of most roles first."""
    methods: dict[frozenset[Role], list[str]] = {}
    for path, roles in ROLES_THAT_MAY.items():
        if path.startswith(f"/{SERVICE}/"):
            methods.setdefault(roles, []).append(path.rpartition("/")[2])
    columns = [role for role in Role if role is not Role.ADMIN]
    rows = [
        (", ".join(map(code, names)), *("yes" if role in roles else "–" for role in columns))
        for roles, names in sorted(methods.items(), key=lambda entry: -len(entry[0]))
    ]
    return table(("methods", *(code(role.value) for role in columns)), rows)
