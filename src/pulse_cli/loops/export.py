"""Writes an export, page by page, and shows how to continue if it ends early."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

import click

from pulse_cli.failures import Misuse
from pulse_cli.terminal import hint
from pulse_cli.views.steps import job_shape_with_steps
from pulse_text.times import iso

if TYPE_CHECKING:
    from pulse import ExportedJobs


class Export:
    """The file, or standard output, that jobs are exported to."""

    def __init__(self, path: Path | None, *, is_continued: bool) -> None:
        self._path = path
        self._is_continued = is_continued
        self._resources = ExitStack()
        self._out: IO[str] = sys.stdout
        self._cursor: str | None = None
        self._count = 0
        self._is_done = False

    def __enter__(self) -> Self:
        if self._path is not None:
            self._out = self._resources.enter_context(_opened(self._path, self._is_continued))
        return self

    def write(self, pages: Iterable[ExportedJobs]) -> None:
        """Write all pages. A page counts once it is written whole."""
        for page in pages:
            # In ASCII: a payload may have characters that no file can hold, and JSON has an escape for each.
            shapes = (job_shape_with_steps(job, page.steps.get(job.id, ())) for job in page)
            lines = [json.dumps(shape, separators=(",", ":")) + "\n" for shape in shapes]
            self._out.write("".join(lines))
            self._out.flush()
            self._count += len(page)
            self._cursor = page.next_cursor
            if page.next_cursor is None:
                self._is_done = True
                before = f" that finished before {iso(page.before)}" if page.before else ""
                hint(f"{self._count:,} jobs{before} were exported.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()
        if self._is_done:
            return
        if self._cursor is not None:
            hint(
                f"The export ended early, after {self._count:,} jobs. "
                f"Continue with the same options and --after {self._cursor}"
            )
        elif self._path is not None and not self._is_continued:
            self._path.unlink(missing_ok=True)  # nothing was written, and the next try needs the name


def _opened(path: Path, is_continued: bool) -> IO[str]:
    try:
        return path.open("a" if is_continued else "x", encoding="ascii", newline="\n")
    except FileExistsError:
        raise Misuse(
            f"{path} exists already. Give another --file, or --after CURSOR to continue an export in it."
        ) from None
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from None
