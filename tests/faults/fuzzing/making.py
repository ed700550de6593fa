"""Inputs by their kinds: structured, mangled, misplaced, and bare connections."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pulse_server.base import tuning
from tests.faults.fuzzing.acquaintances import Acquaintances
from tests.faults.fuzzing.callers import GOOD, odd_metadata, wrong_credentials, wrong_names
from tests.faults.fuzzing.contract import RPCS, Rpc
from tests.faults.fuzzing.inputs import Call, Input, Metadata
from tests.faults.fuzzing.mangling import mangled
from tests.faults.fuzzing.messages import Requests
from tests.faults.fuzzing.wires import wires

# Now and then a caller leaves at once, or sends a unary call no message, or two.
_SELDOM = st.sampled_from((False,) * 5 + (True,))
_HANGS_UP = st.sampled_from((False,) * 23 + (True,))
_ONE = st.sampled_from((1,) * 18 + (0, 2))
_MOST_ON_A_STREAM = 5


class Making:
    """Makes inputs for a server; a guarded one has users."""

    def __init__(self, known: Acquaintances, *, guarded: bool) -> None:
        self._requests = Requests(known)
        if guarded:
            good: SearchStrategy[Metadata] = st.sampled_from(tuple(GOOD))
            self._metadata = st.one_of(wrong_credentials, good)
        else:
            self._metadata = st.sampled_from((False,) * 5 + (True,)).flatmap(
                lambda odd: odd_metadata if odd else st.just(())
            )
        self.structured = cache(self._structured)
        self.mangled = cache(self._mangled)

    def about(self, rpc: Rpc) -> SearchStrategy[Input]:
        """Calls of this RPC, with a few others in between."""
        return st.one_of(
            self.structured(rpc),
            self.structured(rpc),
            self.structured(rpc),
            self.mangled(rpc),
            st.sampled_from(RPCS).flatmap(self.structured),
        )

    def misplaced(self) -> SearchStrategy[Input]:
        """Calls of methods that do not exist, and messages of one method sent to another."""
        anything = st.sampled_from(RPCS).flatmap(self._encoded)
        path = st.one_of(wrong_names, st.sampled_from([rpc.path for rpc in RPCS]))
        return self._calls(path, st.lists(anything, min_size=1, max_size=2), "misplaced")

    def wires(self) -> SearchStrategy[Input]:
        return wires()

    def _structured(self, rpc: Rpc) -> SearchStrategy[Input]:
        return self._calls(st.just(rpc.path), _several(rpc, self._encoded(rpc)), "structured")

    def _mangled(self, rpc: Rpc) -> SearchStrategy[Input]:
        messages = _several(rpc, mangled(self._encoded(rpc), rpc.method.input_type))
        return self._calls(st.just(rpc.path), messages, "mangled")

    def _encoded(self, rpc: Rpc) -> SearchStrategy[bytes]:
        return self._requests.of(rpc.method.input_type).map(lambda message: message.SerializeToString())

    def _calls(
        self, path: SearchStrategy[str], messages: SearchStrategy[list[bytes]], kind: str
    ) -> SearchStrategy[Input]:
        return st.builds(Call, path, messages.map(tuple), self._metadata, _HANGS_UP, st.just(kind))


def oversize() -> list[Input]:
    """Messages larger than the server accepts. Made rarely: each has 4 MiB."""
    data = bytes(tuning.MAX_MESSAGE_BYTES + 1)
    by_name = {rpc.name: rpc for rpc in RPCS}
    return [
        Call(by_name[name].path, (data,), kind="oversize") for name in ("SubmitJob", "StreamSubmits", "Check")
    ]


def _several(rpc: Rpc, encoded: SearchStrategy[bytes]) -> SearchStrategy[list[bytes]]:
    """As many messages as the RPC takes; now and then another number."""
    if rpc.takes_stream:
        return st.lists(encoded, max_size=_MOST_ON_A_STREAM)
    return _ONE.flatmap(lambda count: st.lists(encoded, min_size=count, max_size=count))
