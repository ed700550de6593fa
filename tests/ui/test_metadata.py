"""A job's metadata: what its producer put there, apart from the trace that travels along."""

from __future__ import annotations

from pulse_ui.words import metadata_view

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def test_trace_entries_are_separated() -> None:
    view = metadata_view(
        {"tenant": "acme", "traceparent": PARENT, "x-vendor": "1", "pulse.trace": "traceparent x-vendor"}
    )

    assert view.given == (("tenant", "acme"),)
    assert [name for name, _ in view.trace] == ["traceparent", "x-vendor"]
    assert view.trace_id == TRACE


def test_a_context_that_cannot_be_read_is_shown_as_it_is() -> None:
    view = metadata_view({"traceparent": "<b>"})

    assert (view.trace, view.trace_id) == ((("traceparent", "<b>"),), "")


def test_what_an_entry_hides_is_written_out() -> None:
    assert metadata_view({"a\u202e": "b\x00"}).given == (("a\\u202e", "b\\x00"),)
