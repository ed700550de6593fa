"""Errors that are alike have one group, whatever varies from job to job."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from pulse_server.base import bounds
from pulse_server.base.bounds import LEASE_EXPIRED_GROUP, error_group, shape
from tests.rows import each_row

TRACEBACK = """
  File "/srv/app/{folder}/mail.py", line {line}, in send
    smtp.login(user, {line})
"""
ALIKE = {
    "numbers": ("Timeout: no answer after 30 s", "Timeout: no answer after 1.5 s"),
    "negative numbers": ("offset 5 is wrong", "offset -17 is wrong"),
    "lists of numbers": ("rows [1, 2, 3] clash", "rows [4, 5] clash"),
    "hexadecimal": ("<Socket at 0x7f33aa10>", "<Socket at 0x55e1>"),
    "hashes": ("no blob 9f86d081884c7d65", "no blob e3b0c44298fc1c14"),
    "UUIDs": (
        "no user 0190f3a2-7b1c-7000-8000-00000000002a",
        "no user DEADBEEF-aaaa-bbbb-cccc-abcdefabcdef",
    ),
    "made ids": ("no charge ch_3MtwBwLkdIwHu7ix28a3tqPa", "no charge ch_1NQvXyLkdIwHu7ixAbCdEfGh"),
    "moments": ("late since 2030-01-01T12:00:00Z", "late since 2030-02-11 07:30:01.123456+00:00"),
    "addresses": ("connect to 10.0.0.1:5432 refused", "connect to 192.168.7.12:6543 refused"),
    "quoted values": ("KeyError: 'id'", "KeyError: 'a b c'"),
    "double quotes": ('no column "a"', 'no column "b c"'),
    "bytes": ("ValueError: b'ab' is short", "ValueError: b'x' is short"),
    "e-mail addresses": ("no mailbox ann@example.com", "no mailbox bob.smith+1@mail.example.org"),
    "paths": ("cannot open /var/spool/4711/a.txt", "cannot open /var/spool/12/a.txt"),
    "temporary files": ("cannot open /tmp/tmpab_cdefg/out", "cannot open /tmp/tmpzyxwvuts/out"),
    "blanks": ("it  did\tnot work", "it did not work"),
    "line numbers": (
        "OSError: gone\n" + TRACEBACK.format(line=3, folder="a"),
        "OSError: gone\n" + TRACEBACK.format(line=99, folder="b"),
    ),
    "a traceback, or none": ("OSError: gone\n" + TRACEBACK.format(line=3, folder="a"), "OSError: gone"),
    "a traceback in front": (
        "Traceback (most recent call last):" + TRACEBACK.format(line=3, folder="a") + "OSError: gone",
        "OSError: gone",
    ),
    "the errors around a cause": (
        "RenderFailed: page 3 [cause: OSError: gone]\n\n  File 'a'\n\nCaused by OSError: gone\n  File 'b'",
        "OSError: gone",
    ),
    "the labels of a cause": (
        "E: a [cause: OSError: gone]\n\nWhile handling OSError: gone\n  Note: x\n\nCaused by E: b",
        "ExceptionGroup: 2 [cause: OSError: gone]\n\nSub-exception 1: E\n\nSub-exception 1.1: OSError: gone",
    ),
    "further lines of a cause": (
        "E: a [cause: OSError: gone]\nof a\n\nCaused by OSError: gone\nand more\n  File 'b'\n\nCaused by x",
        "OSError: gone\nand more",
    ),
    "a cause that is longer than its name": (
        f"E: a [cause: OSError: {'long ' * 100}"[: 13 + 300] + f"]\n\nCaused by OSError: {'long ' * 100}",
        f"OSError: {'long ' * 100}",
    ),
    "a cause that quotes a cause": (
        "E: b [cause: x] [cause: E: a [cause: b]]\n\nCaused by E: a [cause: b]",
        "E: a [cause: b]",
    ),
    "quotes that are cut off": ("bad answer: '" + "x" * 5000 + "'", "bad answer: '" + "y" * 300),
}
DIFFERENT = {
    "kinds": ("KeyError: 1", "IndexError: 1"),
    "kinds that differ in a digit": ("S3UploadFailedError: no", "S4UploadFailedError: no"),
    "kinds with modules": ("a.b.Error: no", "a.c.Error: no"),
    "kinds in modules with digits": ("boto3.S3UploadFailedError: no", "boto3.S3UploadSlowedError: no"),
    "messages": ("ValueError: too long", "ValueError: too short"),
    "words with digits": ("utf8 failed", "ascii failed"),
    "files in paths": ("cannot open /etc/hosts", "cannot open /etc/passwd"),
    "apostrophes are no quotes": ("it can't read what's there", "it can't write what's there"),
    "causes": (
        "E: a [cause: OSError: gone]\n\nCaused by OSError: gone",
        "E: a [cause: OSError: full]\n\nCaused by OSError: full",
    ),
    "a cause that is only named": ("E: a [cause: OSError: gone]", "OSError: gone"),
    "a cause that the first line does not name": ("E: a\nCaused by OSError: gone", "OSError: gone"),
    "something and nothing": ("OSError", ""),
}


@each_row("pair", list(ALIKE.values()))
def test_errors_that_differ_in_this_are_alike(pair: tuple[str, str]) -> None:
    one, other = pair
    assert shape(one) == shape(other)


@each_row("pair", list(DIFFERENT.values()))
def test_errors_that_differ_in_this_are_not_alike(pair: tuple[str, str]) -> None:
    one, other = pair
    assert error_group(one) != error_group(other)


def test_group_stays_what_it_is_for_ever() -> None:
    """Dead letters keep theirs: another id for the same error would split the group."""
    assert LEASE_EXPIRED_GROUP == "3201d5cec167"
    assert error_group("KeyError: 'id'") == "86194952523c"
    # A message of several lines that has the words of a label, as a Java service writes them.
    assert error_group("Py4JJavaError: x\nCaused by: java.io.IOException: y\n\tat z") == "060065cf4714"


@given(st.text(max_size=300))
def test_any_error_has_a_group_that_a_filter_takes(error: str) -> None:
    assert bounds.check_error_group(error_group(error)) == error_group(error)


# Where a pattern could match in many ways, or begin anew at each character.
HOSTILE = [
    "a",
    "'",
    '"',
    "a@",
    "1-",
    "#",
    "# ",
    "-+",
    "a.b.",
    "0x",
    "/1",
    "\\",
    "'a",
    "abcdef01-",
    "A.",
    "Ab:",
    " [cause: ",
    "\nCaused by ",
]


@each_row("piece", [*HOSTILE, "\n", "a\n", " \n", "x\n\n\n", string.printable])
def test_shape_of_a_hostile_error_is_found_and_short(piece: str) -> None:
    """A pattern that could match in too many ways would never come to an end."""
    assert len(shape(("x" + piece * bounds.MAX_ERROR_BYTES)[: bounds.MAX_ERROR_BYTES])) <= 300
