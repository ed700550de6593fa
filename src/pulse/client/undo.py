"""The verbs that undo an action on jobs: a cancel, a retry or a change of priority."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from pulse.client.caller import Caller
from pulse.messages import existing_id, message
from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of one batch of an undo."""

    undone: int
    skipped: int
    """Jobs that have changed since the action, are locked, or whose unique key another job holds."""
    running: int
    """Those of the skipped jobs that were canceled while they ran. Retry them to run them again."""
    next_cursor: str | None
    """Pass it to the next batch. None if no job is left."""
    held: int = 0
    """Those of the skipped jobs whose unique key another job holds."""
    locked: int = 0
    """Those of the skipped jobs that another database session has locked. Undo the action again for them."""

    def __add__(self, batch: Undone) -> Undone:
        """Return the totals. The cursor is that of the later batch."""
        return Undone(
            self.undone + batch.undone,
            self.skipped + batch.skipped,
            self.running + batch.running,
            batch.next_cursor,
            self.held + batch.held,
            self.locked + batch.locked,
        )


class UndoVerbs:
    """The verbs of a `Pulse` that undo an action."""

    _caller: Caller

    async def undo_batch(
        self,
        action_id: str,
        *,
        reason: str = "",
        dry_run: bool = False,
        cursor: str | None = None,
        undo_id: str = "",
        timeout: timedelta | None = None,
    ) -> Undone:
        """Revert the next jobs of an action that canceled, retried or prioritized jobs.

        Only jobs that are as the action left them are changed. `dry_run` only counts. `undo_id` is the id of
        this action: give the same one for all batches.
        """
        request = message(
            pb.UndoActionRequest,
            action_id=existing_id(action_id, "action"),
            reason=reason,
            dry_run=dry_run,
            page_token=cursor or "",
            undo_id=undo_id,
        )
        response = await self._caller.call(lambda stub: stub.UndoAction, request, timeout, repeatable=dry_run)
        return Undone(
            response.undone,
            response.skipped,
            response.running,
            response.next_page_token or None,
            response.held,
            response.locked,
        )

    async def undo(self, action_id: str, *, reason: str = "", timeout: timedelta | None = None) -> Undone:
        """Revert a whole action, batch by batch. Returns the totals. `timeout` bounds each batch.

        A delete cannot be undone. Raises InvalidTransition if no job was changed by the action last.
        """
        total, undo_id = Undone(0, 0, 0, None), str(uuid4())
        while True:
            total += await self.undo_batch(
                action_id, reason=reason, cursor=total.next_cursor, undo_id=undo_id, timeout=timeout
            )
            if total.next_cursor is None:
                return total
