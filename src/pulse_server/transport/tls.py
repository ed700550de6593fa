"""The server's certificate, reloaded when its files change: a renewal needs no restart. ADR-0020"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import grpc

from pulse_server.base import tuning
from pulse_server.settings import BadSettings, TlsFiles
from pulse_server.transport.key_pair import FilesChanged, KeyPair, read_key_pair

# Handshakes check the files no more often than this. A renewed certificate is used that much later.
CERTIFICATE_LOOK_INTERVAL = timedelta(seconds=1)

log = logging.getLogger(__name__)

# Identifies one state of a file. The change time also detects a chmod that made it readable.
_Stamp: TypeAlias = tuple[int, int, int, int] | None


class Certificates:
    """The certificate in use. Each handshake requests it, which reloads changed files.

    Invalid or partly written files leave the old certificate in place. Handshakes run in threads of gRPC, so
    every method is thread-safe.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Read the files. Raises BadSettings if they are invalid."""
        self._files = files
        self._lock = threading.Lock()
        self._stamps = self._file_stamps()
        try:
            self._pair = read_key_pair(files)
        except FilesChanged:
            raise BadSettings(
                f"PULSE_TLS_CERT ({files.certificate}) and PULSE_TLS_KEY ({files.key}) are being written to: "
                "start pulsed once they are complete."
            ) from None
        self._checked_at = time.monotonic()
        self._warned_on: date | None = None
        self._warn_if_expiring()

    @property
    def pair(self) -> KeyPair:
        """The last valid key pair."""
        return self._pair

    def current(self) -> KeyPair:
        """Return the key pair, reloaded if the files have changed."""
        with self._lock:
            now = time.monotonic()
            if now - self._checked_at >= CERTIFICATE_LOOK_INTERVAL.total_seconds():
                self._checked_at = now
                self._read_if_changed()
                self._warn_if_expiring()
            return self._pair

    def read_again(self) -> None:
        """Reload the files now, if they have changed."""
        with self._lock:
            self._read_if_changed()

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a gRPC port that follow the files."""
        given = self.current()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            # Two concurrent handshakes may both receive the new one, which is harmless.
            if (current := self.current()) is given:
                return None  # as before
            given = current
            return _configuration(current)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(given),
            fetch,  # type: ignore[arg-type]  # the stubs do not know that None means "as before"
            require_client_authentication=self._files.client_ca is not None,
        )

    def server_ssl_context(self) -> ssl.SSLContext:
        """Return a context that follows the files, for HTTP. It does not request client certificates."""
        context = self.current().context
        context.sni_callback = self._switch
        return context

    def _switch(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Switch to the current certificate. Called in each handshake, with or without a host name."""
        connection.context = self.current().context

    def _read_if_changed(self) -> None:
        stamps = self._file_stamps()
        if stamps == self._stamps:
            return
        try:
            pair = read_key_pair(self._files)
        except FilesChanged:
            return  # the stamps are unchanged, so the next check reads them again
        except (BadSettings, OSError) as error:
            self._stamps = stamps  # logged once for each state of the files
            log.error(
                "certificate_not_reloaded", extra={"reason": str(error), "still_using": _facts(self._pair)}
            )
            return
        self._stamps = stamps
        if pair == self._pair:
            return
        self._pair = pair
        self._warned_on = None
        log.info("certificate_reloaded", extra=_facts(pair))

    def _file_stamps(self) -> tuple[_Stamp, ...]:
        files = (self._files.certificate, self._files.key, self._files.client_ca)
        return tuple(_stamp(file) for file in files if file is not None)

    def _warn_if_expiring(self) -> None:
        now = datetime.now(UTC)
        left = self._pair.expires_at - now
        if left < tuning.CERTIFICATE_WARNING and self._warned_on != now.date():
            self._warned_on = now.date()  # once a day
            log.warning("certificate_expires_soon", extra={**_facts(self._pair), "days_left": left.days})


def _configuration(pair: KeyPair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key_pem, pair.chain_pem)], pair.client_ca_pem)


def _facts(pair: KeyPair) -> dict[str, object]:
    return {
        "names": list(pair.names),
        "subject": pair.subject,
        "expires_at": pair.expires_at.isoformat(),
    }


def _stamp(file: Path) -> _Stamp:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
