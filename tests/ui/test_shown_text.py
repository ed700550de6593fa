"""Text of users and workers is shown as the CLI shows it: nothing in it reorders or hides other text."""

from __future__ import annotations

from pathlib import Path

import pytest

import pulse_ui
from pulse_text import printable
from pulse_ui.web.rendering import _environment

# Of a terminal, of the direction of writing, and without width.
HOSTILE = "pay \x1b[31mAnn\u202e nnA yap\u200b\x9b now\n\tand <later>"


@pytest.fixture
def render() -> object:
    environment = _environment(read_only=False, refresh_seconds=1)
    return lambda template: environment.from_string(template).render(text=HOSTILE)


def test_control_and_bidi_characters_are_shown_as_in_the_cli(render: object) -> None:
    assert callable(render)
    shown = render("{{ text }}")
    assert shown == printable.lines(HOSTILE).replace("<", "&lt;").replace(">", "&gt;")
    assert not set("\x1b\u202e\u200b\x9b") & set(shown)


def test_value_of_a_form_comes_back_as_it_is(render: object) -> None:
    assert callable(render)
    assert render("{{ verbatim(text) }}") == HOSTILE.replace("<", "&lt;").replace(">", "&gt;")


def test_every_value_of_a_form_is_verbatim() -> None:
    """Otherwise what a person saves without a change would be another text."""
    for template in Path(pulse_ui.__file__).parent.rglob("*.html"):
        for line in template.read_text(encoding="utf-8").splitlines():
            assert 'value="{{' not in line.replace('value="{{ verbatim(', ""), (template.name, line)
