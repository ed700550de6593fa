"""Several server processes behind one port, started, watched and replaced by a supervisor.

docs/figures.md#several-processes
"""

from pulse_server.supervisor.lifeline import Lifeline
from pulse_server.supervisor.supervising import ProcessFailed, longest_drain, restarts, supervise

__all__ = ["Lifeline", "ProcessFailed", "longest_drain", "restarts", "supervise"]
