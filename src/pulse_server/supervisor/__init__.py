"""Several server processes behind one port, started, watched and replaced by a supervisor.

The kernel spreads connections over the processes (SO_REUSEPORT), so no byte passes through the
supervisor. Each process is a server like any other: only the port and the database are shared. Processes
are started anew, because gRPC does not survive a fork. One socket pair per process shows each side the
end of the other, SIGKILL included. docs/figures.md#several-processes
"""

from pulse_server.supervisor.lifeline import Lifeline
from pulse_server.supervisor.supervising import ProcessFailed, longest_drain, restarts, supervise

__all__ = ["Lifeline", "ProcessFailed", "longest_drain", "restarts", "supervise"]
