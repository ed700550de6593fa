"""A visitor without a browser: plain HTTP, with cookies, for what a browser would never send."""

from __future__ import annotations

import asyncio
import http.client
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.cookies import SimpleCookie
from urllib.parse import urlencode, urlsplit

from tests.eventually import PATIENCE_SECONDS
from tests.transport.authorized import PASSWORD


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def location(self) -> str:
        return self.headers.get("location", "")


class Visitor:
    def __init__(self, url: str, trust: ssl.SSLContext | None = None) -> None:
        self.url = url
        self._trust = trust
        self.cookies: dict[str, str] = {}
        self.token = ""

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        answer = await asyncio.to_thread(self._ask, "GET", path, None, headers or {})
        if found := re.search(r'name="csrf" value="([^"]+)"', answer.text):
            self.token = found[1]
        return answer

    async def post(
        self,
        path: str,
        fields: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str | None] | None = None,
        *,
        token: str | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Send a form as our own pages do: with their origin and token, unless given."""
        form = [("csrf", self.token if token is None else token), *fields]
        sent = {"origin": self.url, "content-type": "application/x-www-form-urlencoded"} | dict(headers or {})
        kept = {name: value for name, value in sent.items() if value is not None}
        content = urlencode(form).encode() if body is None else body
        return await asyncio.to_thread(self._ask, "POST", path, content, kept)

    async def log_in(self, user: str, password: str = PASSWORD) -> Answer:
        await self.get("/login")
        answer = await self.post("/login", [("user", user), ("password", password)])
        await self.get("/")
        return answer

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        parts = urlsplit(self.url)
        host, port = parts.hostname or "", parts.port
        connection = (
            http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
            if self._trust is None
            else http.client.HTTPSConnection(host, port, timeout=PATIENCE_SECONDS, context=self._trust)
        )
        try:
            cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            connection.request(method, path, body, {"cookie": cookies, **headers})
            response = connection.getresponse()
            for header in response.headers.get_all("set-cookie", []):
                for name, morsel in SimpleCookie(header).items():
                    self.cookies[name] = morsel.value
            return Answer(response.status, response.headers, response.read().decode())
        finally:
            connection.close()
