"""Whether a server that runs can go on with the schema as it is now."""

from __future__ import annotations

from pulse_server.postgres.migrations.runner import SchemaMismatch, migration_status


async def require_usable_schema(dsn: str) -> None:
    """Return if all that this server was built on is there; SchemaMismatch if not.

    Unlike at the start a newer schema is no obstacle: in a rollout somebody has migrated already, the old
    servers work on with it, and must not all be taken out of service at once.
    """
    status = [entry for entry in await migration_status(dsn) if entry.is_known]
    missing = [entry.name for entry in status if entry.applied_at is None]
    if missing:
        raise SchemaMismatch(f"The database lacks {', '.join(missing)}. Run `pulsed migrate`.")
    changed = [entry.name for entry in status if entry.is_changed]
    if changed:
        raise SchemaMismatch(
            f"Migration {', '.join(changed)} was applied with other content than this server's. "
            "Install the release of pulsed that made this schema, or restore the database from it."
        )
