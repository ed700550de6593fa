"""docs/metrics.md lists each metric, and no other."""

import re
from pathlib import Path

from pulse_server.base.metrics import MOST_TOPICS, OTHER_TOPICS, Counter, Instrument, Metrics

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(pulse_\w+)` \| (\w+) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


def row_of(instrument: Instrument) -> tuple[str, str, str, str]:
    name = f"{instrument.name}_total" if isinstance(instrument, Counter) else instrument.name
    labels = ", ".join(f"`{label}`" for label in instrument.labels)
    return name, type(instrument).__name__.lower(), labels, instrument.help


def test_page_lists_each_metric_as_it_is() -> None:
    rows = [tuple(part.strip() for part in row) for row in ROW.findall(PAGE)]

    assert sorted(rows) == sorted(row_of(instrument) for instrument in Metrics())


def test_page_states_how_many_topics_have_a_label() -> None:
    assert f"{MOST_TOPICS:,} topics" in PAGE
    assert f"`{OTHER_TOPICS}`" in PAGE
