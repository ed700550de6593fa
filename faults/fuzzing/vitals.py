"""What must hold for the server and its rows after any input."""

from __future__ import annotations

import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from pulse_server.base import bounds
from tests.postgres.sessions import Connection

_MEBIBYTE = 1024 * 1024
# What the allocator and the caches of a healthy server still take after a warm-up, however long the run is.
_ALLOWED_BYTES = 32 * _MEBIBYTE
_ALLOWED_SHARE = 0.10

# Every CHECK of the schema, verified again for every row.
_CHECKS = """
SELECT conrelid::regclass::text AS of_table, pg_get_expr(conbin, conrelid) AS rule
FROM pg_constraint WHERE contype = 'c' AND connamespace = 'pulse'::regnamespace
"""
# What no CHECK enforces, but the validation of requests does.
_TOPIC = "topic ~ '^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,254}$'"
_THESE_CENTURIES = "next_run_at BETWEEN '1970-01-01' AND '2300-01-01'"
_RULES = {
    "pulse.jobs": (
        _TOPIC,
        _THESE_CENTURIES,
        "max_attempts >= 1",
        "status <> 'COMPLETED' OR (attempts > 0 AND started_at IS NOT NULL)",
        f"octet_length(payload) <= {bounds.MAX_PAYLOAD_BYTES}",
        f"octet_length(last_error) <= {bounds.MAX_ERROR_BYTES}",
        f"length(locked_by) <= {bounds.MAX_WORKER_ID_LENGTH}",
        f"length(idempotency_key) <= {bounds.MAX_KEY_LENGTH}",
        "jsonb_typeof(metadata) = 'object'",
        "jsonb_array_length(history) <= 20",
    ),
    "pulse.completed_jobs": (_TOPIC, _THESE_CENTURIES, "attempts > 0 AND started_at IS NOT NULL"),
    "pulse.schedules": (
        _TOPIC,
        _THESE_CENTURIES,
        "interval_ms BETWEEN 1000 AND 315360000000",
        f"max_attempts BETWEEN 1 AND {bounds.MAX_ATTEMPTS}",
        f"length(name) <= {bounds.MAX_KEY_LENGTH}",
        "length(cron_expr) <= 1000",
    ),
    "pulse.barred_topics": (_TOPIC, f"octet_length(reason) <= {bounds.MAX_ERROR_BYTES}"),
}


async def broken_rules(connection: Connection) -> list[str]:
    """The rules that some row breaks."""
    rules = [(table, rule) for table, promised in _RULES.items() for rule in promised]
    rules += [(row["of_table"], row["rule"]) for row in await connection.fetch(_CHECKS)]
    found = []
    for table, rule in rules:
        rows = await connection.fetchval(f"SELECT count(*) FROM {table} WHERE NOT ({rule})")
        if rows:
            found.append(f"{rows} rows of {table} break the rule: {rule}")
    return found


def resident_bytes(pid: int) -> int:
    """How much memory the process has."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(shown.stdout) * 1024


@dataclass
class Memory:
    """Samples of a process's memory, each with how many inputs it had been sent."""

    pid: int
    samples: list[tuple[int, int]] = field(default_factory=list)

    def note(self, inputs: int) -> None:
        self.samples.append((inputs, resident_bytes(self.pid)))

    @property
    def warm(self) -> int:
        """After the warm-up: in the second fifth of the inputs."""
        return self._between(0.2, 0.4)

    @property
    def end(self) -> int:
        return self._between(0.9, 1)

    @property
    def has_grown_too_much(self) -> bool:
        """Whether it grew so much that it would not stop."""
        return self.end - self.warm > max(_ALLOWED_BYTES, _ALLOWED_SHARE * self.warm)

    @property
    def per_input(self) -> float:
        """The growth in bytes per input, from the middle of the second fifth to the end."""
        return (self.end - self.warm) / max(1, 0.7 * self.samples[-1][0])

    def __str__(self) -> str:
        tenths = " ".join(f"{self._between(n / 10, (n + 1) / 10) / _MEBIBYTE:.0f}" for n in range(10))
        start, warm, end = (size / _MEBIBYTE for size in (self.samples[0][1], self.warm, self.end))
        return (
            f"{start:.0f} MiB at the start, {warm:.0f} MiB when warm, {end:.0f} MiB at the end "
            f"({self.per_input:+.0f} bytes per input); by tenths of the inputs: {tenths}"
        )

    def _between(self, first: float, last: float) -> int:
        total = self.samples[-1][0]
        chosen = [size for inputs, size in self.samples if first * total <= inputs <= last * total]
        return int(statistics.median(chosen or [self.samples[-1][1]]))
