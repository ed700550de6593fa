"""The server's certificate, read again when its files change: a renewal needs no restart (docs/adr/0020)."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import grpc

from pulse_server import tuning
from pulse_server.settings import BadSettings, TlsFiles
from pulse_server.transport.key_pair import FilesChanged, KeyPair, read_key_pair

# Handshakes check the files no more often than this. A renewed certificate is used that much later.
CERTIFICATE_LOOK_INTERVAL = timedelta(seconds=1)

log = logging.getLogger(__name__)

# What tells one state of a file from the next. The change time also tells of a chmod that made it readable.
_Stamp: TypeAlias = tuple[int, int, int, int] | None


class Certificates:
    """The certificate in use. Each handshake asks for it, and thereby has changed files read again.

    Files that cannot be used, or that are half written, leave the old certificate in place. Handshakes run in
    threads of gRPC's, so everything here may be called from any thread.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Read the files. Raises BadSettings if they cannot be used."""
        self._files = files
        self._lock = threading.Lock()
        self._stamps = self._look()
        try:
            self._pair = read_key_pair(files)
        except FilesChanged:
            raise BadSettings(
                f"PULSE_TLS_CERT ({files.certificate}) and PULSE_TLS_KEY ({files.key}) are being written to: "
                "start pulsed once they are complete."
            ) from None
        self._looked_at = time.monotonic()
        self._warned_on: date | None = None
        self._warn_if_expiring()

    @property
    def pair(self) -> KeyPair:
        """What was read last and could be used."""
        return self._pair

    def current(self) -> KeyPair:
        """Return the pair to use now, read again if the files have changed."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at >= CERTIFICATE_LOOK_INTERVAL.total_seconds():
                self._looked_at = now
                self._read_if_changed()
                self._warn_if_expiring()
            return self._pair

    def read_again(self) -> None:
        """Look at the files now."""
        with self._lock:
            self._read_if_changed()

    def server_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a port of gRPC's that follow the files."""
        given = self.current()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            # Two handshakes at once may both be given the new one, which does no harm.
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
        """Return a context that follows the files, for servers of HTTP. It asks callers for nothing."""
        context = self.current().context
        context.sni_callback = self._switch
        return context

    def _switch(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called in each handshake, whether the caller names a host or not."""
        connection.context = self.current().context

    def _read_if_changed(self) -> None:
        stamps = self._look()
        if stamps == self._stamps:
            return
        try:
            pair = read_key_pair(self._files)
        except FilesChanged:
            return  # with the stamps as they were, the next look reads them again
        except (BadSettings, OSError) as error:
            self._stamps = stamps  # said once for each state of the files
            log.error(
                "certificate_not_reloaded", extra={"reason": str(error), "still_using": _told(self._pair)}
            )
            return
        self._stamps = stamps
        if pair == self._pair:
            return
        self._pair = pair
        self._warned_on = None
        log.info("certificate_reloaded", extra=_told(pair))

    def _look(self) -> tuple[_Stamp, ...]:
        files = (self._files.certificate, self._files.key, self._files.client_ca)
        return tuple(_stamp(file) for file in files if file is not None)

    def _warn_if_expiring(self) -> None:
        now = datetime.now(UTC)
        left = self._pair.expires_at - now
        if left < tuning.CERTIFICATE_WARNING and self._warned_on != now.date():
            self._warned_on = now.date()  # once a day
            log.warning("certificate_expires_soon", extra={**_told(self._pair), "days_left": left.days})


def _configuration(pair: KeyPair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pair.key_pem, pair.chain_pem)], pair.client_ca_pem)


def _told(pair: KeyPair) -> dict[str, object]:
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
