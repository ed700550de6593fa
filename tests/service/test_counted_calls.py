"""Refused calls are counted in memory, and written by a loop."""

from __future__ import annotations

from pulse_server.database.audit import MOST_ENTRIES, Action, CountedCalls


class Written:
    def __init__(self) -> None:
        self.entries: list[tuple[Action, int]] = []

    async def __call__(self, action: Action, _code: str, _sentence: str, count: int) -> None:
        self.entries.append((action, count))


def refused(user: str, address: str) -> Action:
    return Action("id", "CancelJob", user, "", address)


async def test_invented_visitors_do_not_crowd_out_other_callers() -> None:
    """Any caller can send the address of a visitor."""
    written = Written()
    calls = CountedCalls(written)
    for number in range(MOST_ENTRIES + 1):
        calls.record(refused("ada", f"203.0.{number // 256}.{number % 256} via 10.0.0.4"), "DENIED", "no")
    calls.record(refused("bob", "10.0.0.5"), "DENIED", "no")
    calls.record(refused("ada", "10.0.0.6"), "DENIED", "no")

    await calls.flush()

    counted = [(action.user, action.address, count) for action, count in written.entries]
    assert counted == [
        ("ada", "203.0.0.0 via 10.0.0.4", MOST_ENTRIES + 1),
        ("bob", "10.0.0.5", 1),
        ("ada", "10.0.0.6", 1),
    ]


async def test_entry_ends_after_a_minute_and_failed_writes_are_repeated() -> None:
    now = 0.0
    written, is_down = Written(), True

    async def write(action: Action, code: str, sentence: str, count: int) -> None:
        if is_down:
            raise ConnectionError
        await written(action, code, sentence, count)

    calls = CountedCalls(write, clock=lambda: now)
    calls.record(Action("first", "CancelJob", "ada", "", "10.0.0.4"), "DENIED", "no")
    try:
        await calls.flush()
    except ConnectionError:
        is_down = False
    await calls.flush()
    now = 61.0
    await calls.flush()
    calls.record(Action("second", "CancelJob", "ada", "", "10.0.0.4"), "DENIED", "no")
    await calls.flush()

    assert [(action.id, count) for action, count in written.entries] == [("first", 1), ("second", 1)]
