"""Metrics in the two text formats that Prometheus reads, of one process or of several, labeled by process.

Prometheus' client library takes 20 µs per line. With a few dozen topics a scrape would cost 40 ms of a core
that jobs are waiting for. Here a line takes less than 1 µs. The tests read the text with the library's
parsers.
"""

from __future__ import annotations

import gc
import gzip
import mmap
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from pulse_server.base.metrics import Counter, Distribution, Gauge, Histogram, Instrument, Labels, Metrics


def formatted(instruments: Iterable[Instrument], *, openmetrics: bool) -> str:
    """The families of the instruments, in their order; without OpenMetrics' closing line."""
    return "".join(line for instrument in instruments for line in _family(instrument, openmetrics))


def _family(instrument: Instrument, openmetrics: bool) -> Iterator[str]:
    name = instrument.name
    match instrument:
        case Counter():
            # The older format names a counter by its samples, the newer by its family.
            yield _head(name if openmetrics else f"{name}_total", instrument.help, "counter")
            for key, value in instrument.values.items():
                yield f"{name}_total{_in_braces(_labels(instrument.labels, key))} {value!r}\n"
        case Histogram():
            yield _head(name, instrument.help, "histogram")
            yield from _distributions(instrument)
        case Gauge():
            yield _head(name, instrument.help, "gauge")
            for key, value in instrument.read().items():
                yield f"{name}{_in_braces(_labels(instrument.labels, key))} {value!r}\n"


def _distributions(histogram: Histogram) -> Iterator[str]:
    name = histogram.name
    scraped = histogram.scraped or histogram.bounds
    bounds = [*(repr(float(bound)) if bound in scraped else "" for bound in histogram.bounds), "+Inf"]
    for key, spread in histogram.values.items():
        labels = _labels(histogram.labels, key)
        before = f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{"
        total = 0
        # Counts are cumulative: each bucket includes the lower ones.
        for bound, total in zip(bounds, accumulate(spread.counts), strict=True):
            if bound:
                yield f'{before}le="{bound}"}} {total}\n'
        braces = _in_braces(labels)
        yield f"{name}_count{braces} {total}\n{name}_sum{braces} {spread.total!r}\n"


def _head(name: str, about: str, kind: str) -> str:
    return f"# HELP {name} {_escaped(about)}\n# TYPE {name} {kind}\n"


def _labels(names: Labels, values: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))


def _in_braces(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


# ---------------------------------------------------------------- interpreter
# Metrics of a process and its Python, under the names that common dashboards expect.

_PROC = Path("/proc")
_GENERATION = ("generation",)


def interpreter_instruments() -> list[Instrument]:
    """The current numbers. Without /proc its numbers are left out."""
    return [*_process(), _python(), *_collector()]


def _process() -> list[Instrument]:
    cpu_seconds: dict[Labels, float] = {(): time.process_time()}
    return [
        Counter("process_cpu_seconds", "User and system CPU time of this process.", values=cpu_seconds),
        _gauge("process_start_time_seconds", "When this process started, in Unix time.", _started_at),
        _gauge("process_virtual_memory_bytes", "Address space in use.", lambda: _memory_bytes()[0]),
        _gauge("process_resident_memory_bytes", "Memory in use.", lambda: _memory_bytes()[1]),
        _gauge("process_open_fds", "Open file descriptors.", _open_files),
        _gauge("process_max_fds", "File descriptors that may be open.", _most_files),
    ]


def _gauge(name: str, about: str, measure: Callable[[], float | None]) -> Gauge:
    def read() -> dict[Labels, float]:
        with suppress(OSError):
            if (value := measure()) is not None:
                return {(): value}
        return {}

    return Gauge(name, about, read=read)


@cache
def _started_at() -> float | None:
    # The name of the program stands in brackets before these fields, and may itself have any character in it.
    fields = (_PROC / "self" / "stat").read_text().rpartition(")")[2].split()
    since_boot = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    for line in (_PROC / "stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "btime":
            return int(value) + since_boot
    return None


def _memory_bytes() -> tuple[float, float]:
    """Return the size of the address space, and how much of it is in memory."""
    size, resident, *_ = (_PROC / "self" / "statm").read_text().split()
    return float(int(size) * mmap.PAGESIZE), float(int(resident) * mmap.PAGESIZE)


def _open_files() -> float:
    return float(sum(1 for _ in (_PROC / "self" / "fd").iterdir()))


def _most_files() -> float | None:
    for line in (_PROC / "self" / "limits").read_text().splitlines():
        if line.startswith("Max open files"):
            most = line.split()[3]
            return float(most) if most.isdecimal() else None  # or it says "unlimited"
    return None


def _python() -> Gauge:
    major, minor, patch = platform.python_version_tuple()
    values = (platform.python_version(), platform.python_implementation(), major, minor, patch)
    labels = ("version", "implementation", "major", "minor", "patchlevel")
    return Gauge("python_info", "The Python that runs this process.", labels, lambda: {values: 1.0})


def _collector() -> list[Instrument]:
    stats = gc.get_stats()

    def counted(name: str, about: str, key: str) -> Counter:
        return Counter(
            name, about, _GENERATION, {(str(number),): float(stat[key]) for number, stat in enumerate(stats)}
        )

    return [
        counted("python_gc_objects_collected", "Objects that the garbage collector freed.", "collected"),
        counted(
            "python_gc_objects_uncollectable",
            "Objects that the garbage collector found and cannot free.",
            "uncollectable",
        ),
        counted("python_gc_collections", "Runs of the garbage collector.", "collections"),
    ]


# ---------------------------------------------------------------- exposition

END_OF_OPENMETRICS = "# EOF\n"

_OPENMETRICS = "application/openmetrics-text"
_OPENMETRICS_TYPE = f"{_OPENMETRICS}; version=1.0.0; charset=utf-8"
_PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Shorter answers fit into one packet as they are.
_WORTH_COMPRESSING = 1400
# The text is repetitive: the quickest level removes nine tenths.
_COMPRESSION_LEVEL = 1

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Text:
    """Metrics as they are sent."""

    body: bytes
    content_type: str
    is_compressed: bool = False


class Exposition:
    """The metrics of one process and its interpreter."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        metrics.build.read = lambda: {(installed_version(),): 1}

    def snapshot(self) -> Snapshot:
        """Copy the numbers. Takes well below a millisecond, and must run on the thread that counts."""
        return Snapshot([_copied(instrument) for instrument in self._metrics])


class Snapshot:
    """The metrics of one moment. They no longer change, so rendering them may be left to a thread."""

    def __init__(self, instruments: Sequence[Instrument]) -> None:
        self._instruments = instruments

    def render(self, accept: str, accept_encoding: str) -> Text:
        """The text in the requested format: OpenMetrics, or Prometheus' older text format."""
        is_openmetrics = wants_openmetrics(accept)
        text = formatted([*self._instruments, *interpreter_instruments()], openmetrics=is_openmetrics)
        return packed(text + END_OF_OPENMETRICS if is_openmetrics else text, accept, accept_encoding)


def wants_openmetrics(accept: str) -> bool:
    return _OPENMETRICS in accept


def packed(text: str, accept: str, accept_encoding: str) -> Text:
    """The text as it is sent, compressed if the reader takes that."""
    content_type = _OPENMETRICS_TYPE if wants_openmetrics(accept) else _PLAIN_TYPE
    body = text.encode()
    if "gzip" in accept_encoding and len(body) > _WORTH_COMPRESSING:
        return Text(gzip.compress(body, _COMPRESSION_LEVEL), content_type, is_compressed=True)
    return Text(body, content_type)


def _copied(instrument: Instrument) -> Instrument:
    """A copy with its present values, which no longer change."""
    name, about, labels = instrument.name, instrument.help, instrument.labels
    match instrument:
        case Counter():
            return Counter(name, about, labels, dict(instrument.values) or _zero(labels, 0.0))
        case Histogram():
            bounds = instrument.bounds
            copies = {
                key: Distribution(list(spread.counts), spread.total)
                for key, spread in instrument.values.items()
            } or _zero(labels, Distribution([0] * (len(bounds) + 1)))
            return Histogram(name, about, bounds, labels, copies, instrument.scraped)
        case Gauge():
            now = instrument.read()
            return Gauge(name, about, labels, lambda: now)


def _zero(labels: Labels, nothing: Value) -> dict[Labels, Value]:
    """A zero for instruments without labels: otherwise the first increase would go unseen."""
    return {} if labels else {(): nothing}


@cache
def installed_version() -> str:
    """Return the version of this installation; `unknown` for sources that are not installed."""
    from importlib.metadata import PackageNotFoundError, version  # takes as long as the rest of this module

    try:
        return version("pulse-jobs")
    except PackageNotFoundError:
        return "unknown"


PROCESS = "process"
_FAMILY = re.compile("^(?=# HELP )", re.MULTILINE)


def merged(texts: Mapping[str, str], own: Gauge, accept: str, accept_encoding: str) -> Text:
    """The texts as one, by process, with the supervisor's own metrics. A family stays together.

    The texts are our own, in the format that the reader requested, so they are cut and joined as they are.
    """
    families: dict[str, tuple[str, list[str]]] = {}
    for process, text in texts.items():
        for name, head, samples in _families(text):
            _, lines = families.setdefault(name, (head, []))
            lines.extend(_of_process(sample, process) for sample in samples)
    is_openmetrics = wants_openmetrics(accept)
    ((name, head, samples),) = _families(formatted([own], openmetrics=is_openmetrics))
    families[name] = (head, samples)
    whole = "".join("".join([head, *lines]) for head, lines in families.values())
    return packed(whole + END_OF_OPENMETRICS if is_openmetrics else whole, accept, accept_encoding)


def _families(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Each family's name, the lines that describe it, and its samples."""
    for part in _FAMILY.split(text.removesuffix(END_OF_OPENMETRICS))[1:]:
        about, kind, *samples, _ = part.split("\n")
        yield about.split(" ", 3)[2], f"{about}\n{kind}\n", [f"{sample}\n" for sample in samples]


def _of_process(sample: str, process: str) -> str:
    """The sample with one more label. A name has no brace in it, so the first one opens the labels."""
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f'{name}{{{PROCESS}="{process}",{rest}'
    name, _, rest = sample.partition(" ")
    return f'{name}{{{PROCESS}="{process}"}} {rest}'
