"""taskiq on a Redis stream with a consumer group: its broker that acknowledges."""

from __future__ import annotations

from benchmarks.peers.environments import PythonEnvironment
from benchmarks.peers.peer import Crew, Peer, Shift, python_program

_BROKER = "benchmarks.peers.programs.taskiq:broker"
# Jobs that the group has not received yet, and jobs that it has not acknowledged.
_UNFINISHED = """
local unfinished = 0
for _, group in ipairs(redis.call('XINFO', 'GROUPS', 'taskiq')) do
    for place = 1, #group, 2 do
        if group[place] == 'lag' or group[place] == 'pending' then
            unfinished = unfinished + (tonumber(group[place + 1]) or 0)
        end
    end
end
return unfinished
"""


def _crew(shift: Shift) -> Crew:
    workers = ("--workers", str(shift.processes), "--max-async-tasks", str(shift.slots))
    command = ["-m", "taskiq", "worker", _BROKER, *workers, "--log-level", "ERROR"]
    return Crew([command], f"{shift.slots} tasks at a time, nothing on disk")


PEER = Peer(
    name="taskiq",
    store="redis",
    environment=PythonEnvironment(("taskiq~=0.13.0", "taskiq-redis~=1.2", "hiredis", "uvloop")),
    program=python_program("taskiq"),
    unfinished=_UNFINISHED,
    crew=_crew,
    has_bulk=False,
)
