"""Half a minute of faults in every process and link, with the same plan each time."""

from pathlib import Path

from faults.chaos import Run, carry_out_run
from faults.report import as_text

# It shares the machine with three other processes of the test command: few jobs, but of every kind. The
# seed is one with leases of 8 s: those of 1.5 s end when a process gets no CPU for a second.
RUN = Run(seed=887, seconds=30.0, jobs_per_second=30.0)


async def test_no_promise_is_broken_by_half_a_minute_of_faults(tmp_path: Path) -> None:
    result = await carry_out_run(RUN, tmp_path, print)
    report = as_text(result, str(tmp_path))
    print(report)
    assert not result.failures, report
    assert not result.verdict.violations, report
    # The run did enough work to be able to fail.
    counts = result.verdict.counts
    names = ("acked", "executions", "reaped", "filled", "transfers", "waited", "additions")
    assert all(counts[name] for name in names), report
    assert {fault.kind for fault in result.plan} <= {recovery.kind for recovery in result.recoveries}
