"""A file that passes the bound has two concerns: one of them moves."""

from __future__ import annotations

from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
GENERATED = SRC / "pulse" / "v1"
MOST_LINES = 300


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    files = [
        file for file in SRC.rglob("*.*") if file.suffix in (".py", ".sql") and GENERATED not in file.parents
    ]
    lengths = {str(file.relative_to(SRC)): len(file.read_text().splitlines()) for file in files}

    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
