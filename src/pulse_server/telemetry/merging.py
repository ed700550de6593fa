"""Merges the metrics of several processes into one text, each sample with its process as a label."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pulse_server.telemetry.exposition import END_OF_OPENMETRICS, Text, packed, wants_openmetrics
from pulse_server.telemetry.instruments import Gauge
from pulse_server.telemetry.text_format import formatted

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
