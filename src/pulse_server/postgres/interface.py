"""The functions that applications call in their own transactions, and the rights to call them. ADR-0075"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# The functions of sql/interface/, by the right that a role is granted.
RIGHTS: Mapping[str, Sequence[str]] = {
    "enqueue": ("enqueue", "enqueue_json", "enqueue_many", "enqueue_workflow"),
    "complete": ("complete_job",),
}


def grants(roles: Mapping[str, Sequence[str]]) -> list[str]:
    """The statements that grant rights to roles, given as the roles of each right."""
    named = dict.fromkeys(role for right in RIGHTS for role in roles.get(right, ()))
    return [
        f"GRANT USAGE ON SCHEMA pulse TO {_listed(named)};",
        *(
            f"GRANT EXECUTE ON FUNCTION {', '.join(f'pulse.{name}' for name in functions)} "
            f"TO {_listed(dict.fromkeys(roles[right]))};"
            for right, functions in RIGHTS.items()
            if roles.get(right)
        ),
    ]


def _listed(roles: Mapping[str, None]) -> str:
    return ", ".join('"{}"'.format(role.replace('"', '""')) for role in roles)
