"""Renders metrics as the text that Prometheus reads."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from pulse_server.telemetry.instruments import Counter, Distribution, Gauge, Histogram, Instrument, Labels
from pulse_server.telemetry.interpreter import interpreter_instruments
from pulse_server.telemetry.metrics import Metrics
from pulse_server.telemetry.text_format import formatted

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
