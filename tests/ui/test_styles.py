"""The style sheets: what they style is there, what is there is styled, and every text can be read."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pulse_ui
from pulse import JobStatus
from pulse_ui.jobs.views import OUTCOMES
from pulse_ui.overview.charts import NO_LATENCY, Bucket, charts_of
from pulse_ui.overview.views import Severity
from pulse_ui.words import GREENWICH
from tests.rows import each_row

LOOKED_FOR_BY_TESTS = {"notice", "is-paused"}
# What may stand on what. Of the first group, everything that is written stands on every ground.
ON_ANY_GROUND = [
    (text, ground)
    for text in ("text", "muted", "accent", "bad")
    for ground in ("ground", "surface", "sunken", "accent-soft")
]
ON_ITS_OWN = [(name, f"{name}-ground") for name in ("good", "bad", "warn", "info", "idle", "rest")]


def sources(ending: str) -> str:
    found = sorted(Path(pulse_ui.__file__).parent.rglob(f"*{ending}"))
    assert found
    return "\n".join(file.read_text(encoding="utf-8") for file in found)


STYLES = re.sub(r"/\*.*?\*/", "", sources(".css"), flags=re.DOTALL)
TEMPLATES = sources(".html")


def styled_classes() -> set[str]:
    return set(re.findall(r"\.([A-Za-z][\w-]*)", " ".join(re.findall(r"([^{}]+)\{", STYLES))))


def classes_in_templates() -> set[str]:
    """Those that are written out; what an expression yields is not."""
    values = re.findall(r'class="((?:\{\{.*?\}\}|\{%.*?%\}|[^"])*)"', TEMPLATES)
    return {word for value in values for word in re.sub(r"\{\{.*?\}\}|\{%.*?%\}", " ", value).split()}


def classes_of_views() -> set[str]:
    """Those that are made of data."""
    hour = datetime(2030, 1, 1, tzinfo=UTC)
    buckets = [
        Bucket(hour + number * timedelta(minutes=1), 1, True, 1, 1, 1, NO_LATENCY, NO_LATENCY)
        for number in range(60)
    ]
    series = [
        one for chart in charts_of(buckets, 60, NO_LATENCY, NO_LATENCY, GREENWICH) for one in chart.series
    ]
    return {
        *OUTCOMES,
        *(status.lower() for status in JobStatus),
        *(severity.name.lower() for severity in Severity),
        *(name for one in series for name in one.style.split()),
    }


def test_every_style_is_for_something() -> None:
    texts = TEMPLATES + sources(".js") + sources("views.py") + sources("words.py")
    used = set(re.findall(r"[A-Za-z][\w-]*", texts)) | classes_of_views()
    assert styled_classes() - used == set()


def test_every_class_has_a_style() -> None:
    assert classes_in_templates() - styled_classes() - LOOKED_FOR_BY_TESTS == set()


def test_every_variable_is_defined_and_used() -> None:
    defined = set(re.findall(r"(--[\w-]+):", STYLES))
    assert defined == set(re.findall(r"var\((--[\w-]+)", STYLES))


@each_row("theme", [0, 1])
@each_row("text, ground", [*ON_ANY_GROUND, *ON_ITS_OWN, ("accent-text", "accent-ground")])
def test_text_stands_out_from_its_ground(text: str, ground: str, theme: int) -> None:
    """WCAG AA asks for 4.5 to 1."""
    lighter, darker = sorted((brightness(text, theme), brightness(ground, theme)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def brightness(name: str, theme: int) -> float:
    """The relative luminance of a color, as WCAG defines it."""
    (value,) = re.findall(rf"--{name}: (.*?);", STYLES)
    colors = re.findall(r"#[0-9a-f]{6}", value)
    color = colors[theme if len(colors) > 1 else 0]
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
