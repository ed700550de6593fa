"""A page that says something else than what is printed is found out."""

from tests.docs.transcripts import Transcript
from tests.rows import each_row

FIRST, SECOND, OTHER = (f"01a1dfd2-d01d-779d-9031-{number:012}" for number in (1, 2, 3))
EXPECTED = f"""\
ID                                    STATUS  SUBMITTED
{FIRST}  FAILED  3s ago
{SECOND}  DONE    2026-03-02 09:00:00 UTC, took 5ms
"""


def printed(first: str = OTHER, status: str = "FAILED", *, more: str = "") -> str:
    rows = [f"ID   STATUS SUBMITTED\n{first} {status} now\n"]
    rows.append(f"{SECOND} DONE 2027-11-15 15:28:24 CET, took 1m2s\n{more}")
    return "".join(rows)


def test_ids_times_and_spans_may_differ() -> None:
    assert Transcript().is_whole(EXPECTED, printed())


@each_row(
    "output",
    [printed(status="DONE"), printed(more="and more\n"), printed(first="no-id"), ""],
)
def test_everything_else_may_not(output: str) -> None:
    assert not Transcript().is_whole(EXPECTED, output)


def test_id_that_was_learned_is_typed_and_expected_from_then_on() -> None:
    transcript = Transcript()
    assert transcript.is_whole(f"stored {FIRST}", f"stored {OTHER}")
    assert transcript.as_typed(f"pulse jobs get {FIRST}") == f"pulse jobs get {OTHER}"
    assert transcript.is_whole(f"{FIRST} is done", f"{OTHER} is done")
    assert not transcript.is_whole(f"{FIRST} is done", f"{SECOND} is done")


def test_id_that_a_page_shows_twice_is_the_same_twice() -> None:
    assert Transcript().is_whole(f"{FIRST} {FIRST}", f"{OTHER} {OTHER}")
    assert not Transcript().is_whole(f"{FIRST} {FIRST}", f"{OTHER} {SECOND}")


def test_ellipsis_stands_for_anything_and_alone_for_any_lines() -> None:
    assert Transcript().is_whole("a … c\n…\nend", "a b c\none\ntwo\nend\n")
    assert not Transcript().is_whole("a … c\n…\nend", "a b\nend\n")


def test_lines_are_found_in_what_was_printed_after_the_last_ones() -> None:
    log = "start\nran 1\nran 1\n"
    end = Transcript().end_in("ran 1", log)
    assert end == len("start\nran 1\n")
    assert Transcript().end_in("ran 1", log, end) == len(log)
    assert Transcript().end_in("ran 1", log, len(log)) is None
