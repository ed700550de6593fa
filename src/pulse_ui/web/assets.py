"""Static files: ours, and htmx from its package. Read once, kept in memory."""

from __future__ import annotations

import mimetypes
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

# The URL changes with the content (see rendering.asset_path), so a browser may cache it forever.
_HEADERS = {"cache-control": "public, max-age=31536000, immutable"}


class Assets:
    def __init__(self) -> None:
        ours = (files("pulse_ui") / "static").iterdir()
        self._files = {file.name: file.read_bytes() for file in ours if file.is_file()}
        self._files["htmx.js"] = (files("js_lib_htmx") / "static" / "htmx" / "htmx.min.js").read_bytes()

    async def serve(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = self._files.get(name)
        if content is None:
            return PlainTextResponse("There is no such file.\n", status_code=404)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(content, media_type=kind, headers=_HEADERS)
