"""Writes the outcome of an upgrade as text."""

from __future__ import annotations

from faults.upgrade.trial import Outcome


def as_text(outcome: Outcome) -> str:
    """The figures, then each fault."""
    counts = ", ".join(f"{count:,} {status}" for status, count in outcome.counts.items())
    locked = " + ".join(f"{seconds:.2f}" for seconds in outcome.holds.seconds)
    refused = ", ".join(f"{count:,} {code}" for code, count in sorted(outcome.refusals.items()))
    lines = [
        f"rows        {counts}",
        f"migration   {outcome.migration_seconds:.1f} s until the new server served; "
        f"pulse.jobs was locked for {locked} s",
        f"submitted   {outcome.submitted:,} under load; refused: {refused or 'none'}; the slowest took "
        f"{outcome.longest_submit_seconds:.1f} s",
        f"executions  {outcome.executions:,}",
        f"retention   {outcome.retention_seconds:.1f} s for the completed jobs that were old enough",
    ]
    verdict = "nothing was lost, doubled, changed or run twice" if not outcome.faults else "FAULTS:"
    return "\n".join([*lines, verdict, *(f"  {fault}" for fault in outcome.faults)])
