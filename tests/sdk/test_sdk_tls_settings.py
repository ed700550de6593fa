"""How TLS is set, and which files and variables are refused."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pulse
from pulse.wire import connection, endpoint, servers
from pulse.wire.endpoint import make_endpoint
from tests.transport.tls_files import Authority, chain_of, make_authority


@pytest.fixture(autouse=True)
def _authorities_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine trusts one authority, which signed nothing here."""
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(make_authority(tmp_path / "machine").file))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path / "ours")


def test_environment_turns_tls_on(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = authority.client()
    monkeypatch.setenv("PULSE_TLS_CERT", "/the/server's/own")  # may be set in the same container
    assert make_endpoint("h", None, None).tls is None
    monkeypatch.setenv("PULSE_TLS", "on")
    assert make_endpoint("h", None, None).tls is not None
    monkeypatch.delenv("PULSE_TLS")
    monkeypatch.setenv("PULSE_TLS_CA", str(authority.file))
    monkeypatch.setenv("PULSE_TLS_CLIENT_CERT", str(certificate))
    monkeypatch.setenv("PULSE_TLS_CLIENT_KEY", str(key))
    made = make_endpoint("h", None, None)
    assert made.tls is not None
    assert (made.tls.roots, made.tls.certificate, made.tls.server_name) == (authority.pem, certificate, "h")
    assert "PRIVATE KEY" not in repr(made)
    monkeypatch.setenv("PULSE_TLS_SERVER_NAME", "inside.example")
    named = make_endpoint("h", None, None).tls
    assert named is not None
    assert named.server_name == "inside.example"
    monkeypatch.setenv("PULSE_TLS", "off")
    assert make_endpoint("h", None, None).tls is None
    assert make_endpoint("h", None, None, ca=authority.file).tls is not None  # what the code asks for stays
    monkeypatch.setenv("PULSE_TLS", "on")
    assert make_endpoint("h", None, None, tls=False).tls is None


def _passphrase(directory: Path) -> dict[str, Any]:
    certificate, key = make_authority(directory).client()
    locked = directory / "locked.key"
    command = ["openssl", "pkcs8", "-topk8", "-in", key, "-out", locked, "-passout", "pass:secret"]
    subprocess.run(command, check=True, capture_output=True)
    return {"cert": (certificate, locked)}


def _edwards(directory: Path) -> dict[str, Any]:
    directory.mkdir()
    files = directory / "client.pem", directory / "client.key"
    command = ["openssl", "req", "-x509", "-newkey", "ed25519", "-keyout", files[1], "-out", files[0]]
    subprocess.run([*command, "-subj", "/CN=w", "-nodes"], check=True, capture_output=True)
    return {"cert": files}


def _mismatch(directory: Path) -> dict[str, Any]:
    return {"cert": (make_authority(directory).client()[0], make_authority(directory / "x").client()[1])}


def _key_missing(directory: Path) -> dict[str, Any]:
    return {"cert": make_authority(directory).client()[0]}


def _no_certificate(directory: Path) -> dict[str, Any]:
    return {"ca": make_authority(directory).client()[1]}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (_passphrase, "needs a passphrase"),
        (_edwards, "is an Edwards curve key"),
        (_mismatch, "does not belong to the certificate"),
        (_key_missing, "holds no private key"),
        (_no_certificate, "ca '.*client.key' holds no certificate"),
        (lambda directory: {"ca": directory / "none.pem"}, "ca '.*none.pem' cannot be read: No such file"),
        (lambda directory: {"ca": directory.parent}, "cannot be read: Is a directory"),
        (lambda _: {"ca": 7}, "ca has to be the name of a PEM file"),
        (lambda _: {"cert": ("a", "b", "c")}, "cert has to be"),
        (lambda _: {"tls": "yes"}, "tls has to be True or False"),
        (lambda _: {"tls": False, "server_name": "x"}, "tls=False contradicts"),
    ],
)
def test_files_that_cannot_be_used_are_refused_when_the_client_is_made(
    options: Callable[[Path], dict[str, Any]], sentence: str, tmp_path: Path
) -> None:
    given = options(tmp_path / "files")
    for kind in (pulse.Pulse, pulse.SyncPulse):
        with pytest.raises(pulse.InvalidArgument, match=sentence):
            kind("localhost", **given)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("PULSE_TLS", "perhaps", "PULSE_TLS is 'perhaps': give on or off"),
        ("PULSE_TLS_CA", "/no/such/file", "PULSE_TLS_CA '/no/such/file' cannot be read"),
        ("PULSE_TLS_CLIENT_KEY", "/some/key", "PULSE_TLS_CLIENT_CERT is not"),
    ],
)
def test_variables_that_cannot_be_used_are_named(
    name: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        pulse.Pulse()


async def test_password_in_plain_text_is_warned_about_once_per_address(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "_warned_about", set())
    known = {"user": "ann", "password": "canary-secret"}
    for address, options in (
        ("192.0.2.1:1", known),
        ("192.0.2.1:1", known),
        ("192.0.2.1:1", {}),
        ("192.0.2.2:1", known | {"tls": True}),
        ("localhost:1", known),
    ):
        await connection.Connection(
            make_endpoint(address, **({"user": None, "password": None} | options))
        ).close()
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.startswith("The password goes to pulsed at 192.0.2.1:1 in plain text")
    assert "canary-secret" not in warning


def test_chain_with_comments_is_read(authority: Authority) -> None:
    leaf = authority.ca.issue_cert("worker@example.org")
    file = authority.directory / "commented.pem"
    file.write_bytes("Zertifikat für …\n".encode() + chain_of(leaf) + leaf.private_key_pem.bytes())
    made = endpoint.make_tls("h", ca=authority.file, cert=file)
    assert made is not None
    assert made.chain_pem == chain_of(leaf)
