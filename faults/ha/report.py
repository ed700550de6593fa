"""The report of a trial."""

from __future__ import annotations

from faults.ha.trial import Outcome


def as_text(outcome: Outcome) -> str:
    verdict = outcome.verdict
    lines = [
        "",
        f"  {'machine':<7} {'lost by':<12} {'replaced after':>15} {'then first claim':>17} {'in all':>8}",
    ]
    for recovery in outcome.recoveries:
        replacement, claim = recovery.to_replacement_seconds, recovery.to_claim_seconds
        lines.append(
            f"  {recovery.machine:<7} {recovery.kind:<12} {replacement:>13.1f} s {claim:>15.2f} s "
            f"{replacement + claim:>6.1f} s"
        )
    acknowledged = sum(recovery.acknowledged_after_thaw for recovery in outcome.recoveries)
    lines += [
        "",
        f"  {verdict.acked:>8,}  jobs acknowledged",
        f"  {len(verdict.lost):>8,}  lost",
        f"  {verdict.unasked:>8,}  stored but never acknowledged",
        f"  {len(verdict.healthy_reaped):>8,}  healthy leases reaped",
        f"  {len(verdict.restarted):>8,}  held jobs started twice",
        f"  {len(verdict.after_completion):>8,}  started after their completion",
        f"  {acknowledged:>8,}  commits acknowledged by an old leader after its thaw",
        f"  {verdict.undelivered:>8,}  claims whose answer was lost: never run, their leases expired",
    ]
    for problem in (verdict.lost, verdict.healthy_reaped, verdict.restarted, verdict.after_completion):
        lines += [f"    {entry}" for entry in problem[:5]]
    return "\n".join(lines)
