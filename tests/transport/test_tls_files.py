"""Invalid certificate files are refused at the start, with the reason."""

import logging
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pulse_server.doors.ports import Certificates, doors, read_key_pair, warn_of_open_doors
from pulse_server.settings import BadSettings, Settings, TlsFiles, read_settings
from pulse_server.settings.options import is_loopback
from tests.rows import each_row
from tests.server.pulsed_process import pulsed, run_pulsed
from tests.transport.tls_files import Authority, chain_of, make_authority

NOW = datetime.now(UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def _missing(files: TlsFiles) -> None:
    files.certificate.unlink()


def _directory(files: TlsFiles) -> None:
    files.key.unlink()
    files.key.mkdir()


def _no_pem(files: TlsFiles) -> None:
    files.certificate.write_text("certificate")


def _exchanged(files: TlsFiles) -> None:
    certificate, key = files.certificate.read_bytes(), files.key.read_bytes()
    files.certificate.write_bytes(key)
    files.key.write_bytes(certificate)


def _with_passphrase(files: TlsFiles) -> None:
    plain = files.key.rename(files.key.with_suffix(".plain"))
    _openssl("pkcs8", "-topk8", "-in", plain, "-out", files.key, "-passout", "pass:secret")


def _edwards(files: TlsFiles) -> None:
    subject = ("-subj", "/CN=localhost", "-nodes", "-days", "2")
    _openssl("req", "-x509", "-newkey", "ed25519", "-keyout", files.key, "-out", files.certificate, *subject)


def _of_a_client(files: TlsFiles) -> None:
    purpose = ("-addext", "extendedKeyUsage=clientAuth", "-subj", "/CN=localhost", "-nodes", "-days", "2")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    _openssl("req", "-x509", *new_key, "-keyout", files.key, "-out", files.certificate, *purpose)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (_missing, r"PULSE_TLS_CERT \(.*server.pem\) cannot be read: No such file"),
        (_directory, r"PULSE_TLS_KEY \(.*server.key\) cannot be read: Is a directory"),
        (_no_pem, r"PULSE_TLS_CERT \(.*\) and PULSE_TLS_KEY \(.*\) cannot be used"),
        (_exchanged, r"PULSE_TLS_CERT \(.*\) and PULSE_TLS_KEY \(.*\) cannot be used"),
        (_with_passphrase, r"PULSE_TLS_KEY \(.*\) needs a passphrase"),
        (_edwards, r"PULSE_TLS_KEY \(.*\) is an Edwards curve key"),
        (_of_a_client, r"PULSE_TLS_CERT \(.*\) fails in a handshake: .*purpose"),
    ],
)
def test_files_that_cannot_be_used_are_named_with_their_variable(
    authority: Authority, spoil: Callable[[TlsFiles], None], sentence: str
) -> None:
    files = authority.server()
    spoil(files)
    with pytest.raises(BadSettings, match=sentence) as refused:
        Certificates(files)
    assert "PRIVATE KEY" not in str(refused.value)


def test_key_of_another_certificate_is_refused(authority: Authority) -> None:
    files = authority.server()
    files.key.write_bytes(authority.ca.issue_cert("other.example").private_key_pem.bytes())
    with pytest.raises(BadSettings, match=r"PULSE_TLS_KEY \(.*\) does not belong to the certificate"):
        Certificates(files)


def test_certificate_out_of_its_time_is_refused(authority: Authority) -> None:
    with pytest.raises(BadSettings, match=r"PULSE_TLS_CERT \(.*\) expired on 2024-03-01 00:00 UTC: renew"):
        Certificates(authority.server(not_after=datetime(2024, 3, 1)))
    with pytest.raises(BadSettings, match=r"is not valid before .* clock"):
        read_key_pair(authority.server(), now=datetime(1999, 1, 1, tzinfo=UTC))


def test_authorities_of_clients_have_to_be_certificates(authority: Authority, tmp_path: Path) -> None:
    empty = tmp_path / "clients.pem"
    empty.write_text("")
    with pytest.raises(BadSettings, match=r"PULSE_TLS_CLIENT_CA \(.*\) holds no certificate"):
        Certificates(authority.server(client_ca=empty))


def test_one_file_may_hold_both(authority: Authority) -> None:
    both = authority.directory / "both.pem"
    certificate = authority.ca.issue_cert("pulse.example")
    both.write_bytes(chain_of(certificate) + certificate.private_key_pem.bytes())
    assert Certificates(TlsFiles(both, both)).pair.names == ("pulse.example",)


def test_certificate_that_expires_soon_is_warned_of_once(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    files = authority.server(not_after=(NOW + timedelta(days=5)).replace(tzinfo=None))
    certificates = Certificates(files)
    certificates.current()
    (warning,) = caplog.records
    assert (warning.message, warning.levelname) == ("certificate_expires_soon", "WARNING")
    assert vars(warning)["days_left"] == 4


@each_row(
    "address, only_here",
    [
        ("127.0.0.1:50051", True),
        ("127.9.9.9:1", True),
        ("[::1]:50051", True),
        ("localhost:50051", True),
        ("[::]:50051", False),
        ("0.0.0.0:50051", False),
        ("10.0.0.7:50051", False),
        ("pulse.internal:50051", False),
    ],
)
def test_loopback_is_what_only_this_machine_can_reach(address: str, only_here: bool) -> None:
    assert is_loopback(address) is only_here


@pytest.mark.parametrize(
    ("environment", "fields", "warnings"),
    [
        ({}, {"auth": "open", "tls": "off"}, []),
        (
            {"PULSE_GRPC_ADDR": "0.0.0.0:1", "PULSE_INSECURE_OPEN_TO_NETWORK": "on"},
            {"auth": "open", "tls": "off"},
            ["open_to_everyone_who_can_connect"],
        ),
        ({"PULSE_AUTH_USERS": "ann:pw"}, {"auth": "users", "tls": "off"}, ["credentials_in_plain_text"]),
        (
            {"PULSE_AUTH_USERS": "ann:pw", "PULSE_TLS_CERT": "c", "PULSE_TLS_KEY": "k"},
            {"auth": "users", "tls": "on"},
            [],
        ),
        (
            {
                "PULSE_GRPC_ADDR": "[::]:1",
                "PULSE_TLS_CERT": "c",
                "PULSE_TLS_KEY": "k",
                "PULSE_TLS_CLIENT_CA": "a",
            },
            {"auth": "open", "tls": "mutual"},
            [],
        ),
    ],
)
def test_open_ports_are_logged(
    environment: dict[str, str],
    fields: dict[str, str],
    warnings: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings: Settings = read_settings(environment | {"DB_HOST": "postgres://h/d"})
    caplog.set_level(logging.INFO)
    warn_of_open_doors(settings)
    assert doors(settings) == fields
    assert [record.message for record in caplog.records] == warnings


async def test_pulsed_logs_whether_it_uses_tls_and_never_the_key(
    database_dsn: str, authority: Authority
) -> None:
    files = authority.server()
    tls = {"PULSE_TLS_CERT": str(files.certificate), "PULSE_TLS_KEY": str(files.key)}
    async with pulsed(database_dsn, PULSE_LOG_LEVEL="debug", **tls) as server:
        (serving,) = [event for event in server.events if event["event"] == "serving"]
        assert (serving["tls"], serving["auth"]) == ("on", "open")
        server.signal()
        assert await server.ended() == 0
    for line in files.key.read_text().splitlines()[1:-1]:
        assert line not in server.log


async def test_pulsed_does_not_start_with_half_a_pair_or_an_expired_one(
    database_dsn: str, authority: Authority
) -> None:
    expired = authority.server(not_after=datetime(2024, 3, 1))
    half = {"PULSE_TLS_CERT": str(expired.certificate), "DB_HOST": database_dsn}
    code, _, errors = await run_pulsed(**half)
    assert (code, "PULSE_TLS_KEY is not set" in errors) == (1, True)
    code, _, errors = await run_pulsed(**half, PULSE_TLS_KEY=str(expired.key), PULSE_GRPC_ADDR="127.0.0.1:0")
    assert (code, "expired on 2024-03-01" in errors, "Traceback" in errors) == (1, True, False)
