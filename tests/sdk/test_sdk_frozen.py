"""A process in which C code keeps the interpreter is ended. One that computes in Python, or waits, is not."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

from tests.rows import each_row


def run(body: str) -> subprocess.CompletedProcess[str]:
    """Run the body in a process that half a second of CPU without Python code ends."""
    script = """
        import re, signal, sys, time
        from pulse import tuning

        tuning.FROZEN_CPU_SECONDS, tuning.FROZEN_LOOK_SECONDS = 0.5, 0.05
        from pulse.supervision.supervised import ended_if_frozen

        def compute_in_python():
            until = time.process_time() + 1.5
            while time.process_time() < until:
                pass

        def compute_in_c():
            re.match(r"(a+)+$", "a" * 40 + "b")

    """
    program = textwrap.dedent(script) + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


def test_process_that_is_frozen_ends_with_its_stack() -> None:
    ended = run("""
        with ended_if_frozen():
            compute_in_c()
    """)
    assert ended.returncode == -signal.SIGPROF
    assert "in compute_in_c" in ended.stderr


@each_row(
    "body",
    [
        "with ended_if_frozen(): compute_in_python()",
        "with ended_if_frozen(): pass\ncompute_in_python()",
        # A profiler has the signal, or the timer.
        "signal.signal(signal.SIGPROF, signal.SIG_IGN)\nwith ended_if_frozen(): compute_in_python()",
    ],
)
def test_process_that_runs_goes_on(body: str) -> None:
    ended = run(f"{body}\nprint('done')")
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


def test_timer_of_a_profiler_is_left_alone() -> None:
    ended = run("""
        samples = []
        with ended_if_frozen():
            signal.signal(signal.SIGPROF, lambda *_: samples.append(1))
            signal.setitimer(signal.ITIMER_PROF, 0.01, 0.01)
            compute_in_python()
        print(len(samples) > 20)
    """)
    assert ended.stdout == "True\n", ended.stderr


def test_process_that_was_stopped_goes_on() -> None:
    ended = run("""
        import os, subprocess
        with ended_if_frozen():
            stopped = f"ps -o state= -p {os.getpid()} | grep -q T"
            wake = f"until {stopped}; do sleep 0.1; done; sleep 1.5; kill -CONT {os.getpid()}"
            waker = subprocess.Popen(["sh", "-c", wake])
            os.kill(os.getpid(), signal.SIGSTOP)
            compute_in_python()
        waker.wait()
        print("done")
    """)
    assert ended.stdout == "done\n", ended.stderr
