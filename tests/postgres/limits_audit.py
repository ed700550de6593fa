"""Records each start and end of a run, in the order of the commits, apart from what the server counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.postgres.sessions import Connection

_AUDIT = """
CREATE TABLE pulse.run_audit (
    xid xid DEFAULT pg_current_xact_id()::xid, topic text, lane text, step int, started_at timestamptz
);
CREATE FUNCTION pulse.audit_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.locked_by IS NOT NULL THEN
            INSERT INTO pulse.run_audit (topic, lane, step) VALUES (OLD.topic, OLD.lane, -1);
        END IF;
        RETURN OLD;
    END IF;
    IF (OLD.locked_by IS NULL) <> (NEW.locked_by IS NULL) THEN
        INSERT INTO pulse.run_audit (topic, lane, step, started_at)
        VALUES (NEW.topic, NEW.lane, CASE WHEN NEW.locked_by IS NULL THEN -1 ELSE 1 END, NEW.started_at);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER audit_run BEFORE UPDATE OR DELETE ON pulse.jobs
    FOR EACH ROW EXECUTE FUNCTION pulse.audit_run();
"""
_END = "DROP TRIGGER audit_run ON pulse.jobs; DROP FUNCTION pulse.audit_run; DROP TABLE pulse.run_audit"


@dataclass
class Runs:
    """What ran at once at the most, and when jobs started; by topic, and by topic and lane."""

    most: Counter[tuple[str, ...]] = field(default_factory=Counter)
    starts: dict[tuple[str, ...], list[datetime]] = field(default_factory=lambda: defaultdict(list))

    def most_of_topic(self, *topics: str) -> int:
        return self.most[topics]

    def most_of_a_lane(self, topic: str) -> int:
        return max(
            (count for key, count in self.most.items() if key[0] == topic and len(key) == 2), default=0
        )

    def most_starts(self, topic: str, period: timedelta, *, of_a_lane: bool = False) -> int:
        length = 2 if of_a_lane else 1
        chosen = [starts for key, starts in self.starts.items() if key[0] == topic and len(key) == length]
        return max((_densest(starts, period) for starts in chosen), default=0)


async def begin_audit(connection: Connection) -> None:
    await connection.execute(_AUDIT)


async def end_audit(connection: Connection, pools: Iterable[Sequence[str]] = ()) -> Runs:
    """Stop recording. The topics of a pool are counted together, under all of their names."""
    rows = await connection.fetch(
        "SELECT topic, lane, step, started_at FROM pulse.run_audit "
        "ORDER BY pg_xact_commit_timestamp(xid), step"
    )
    await connection.execute(_END)
    runs, running = Runs(), Counter[tuple[str, ...]]()
    shared = {topic: tuple(pool) for pool in pools for topic in pool}
    for topic, lane, step, started_at in rows:
        keys = [(topic,), *([(topic, lane)] if lane else []), *([shared[topic]] if topic in shared else [])]
        for key in keys:
            running[key] += step
            runs.most[key] = max(runs.most[key], running[key])
            if step == 1:
                runs.starts[key].append(started_at)
    return runs


def _densest(starts: Sequence[datetime], period: timedelta) -> int:
    ordered, most, first = sorted(starts), 0, 0
    for last, moment in enumerate(ordered):
        while moment - ordered[first] >= period:
            first += 1
        most = max(most, last - first + 1)
    return most
