"""TLS on the command line: the broker's side and the client's."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from liftbridge_aio.cli import main
from support.certificates import PASSWORD, Certificates, Pair

BOUND = 20.0
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker_address(certificates: Certificates) -> Iterator[str]:
    """A broker started from the command line that wants certificates, with a key that is locked."""
    pair = certificates.server
    words = ("broker", "--port", "0", "--tls-cert", pair.cert)
    locks = ("--tls-key", certificates.locked(pair), "--tls-client-ca", certificates.ca)
    with subprocess.Popen(
        [sys.executable, "-m", "liftbridge_aio", *words, *locks],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={"LIFTBRIDGE_TLS_KEY_PASSWORD": PASSWORD},
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) == 0


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command to its end in this process, with no variables but those named."""

    def run(*words: object, **variables: object) -> tuple[int, str, str]:
        with monkeypatch.context() as patch:
            for name in ("SERVERS", "TLS", "TLS_CA", "TLS_CERT", "TLS_KEY", "TLS_KEY_PASSWORD"):
                patch.delenv(f"LIFTBRIDGE_{name}", raising=False)
            for name, value in variables.items():
                patch.setenv(name, str(value))
            code = main([*map(str, words)])
        return code, *capsys.readouterr()

    return run


def test_flags_a_url_and_variables_say_the_same(
    run: Run, broker_address: str, certificates: Certificates, admin: Pair
) -> None:
    flags = ("--tls-ca", certificates.ca, "--tls-cert", admin.cert, "--tls-key", admin.key)
    servers = ("--servers", broker_address)
    assert run("publish", "orders", "bread", "--create", *servers, *flags)[0] == 0
    url = (
        f"liftbridge+tls://{broker_address}?server_name=localhost"
        f"&ca={certificates.ca}&cert={admin.cert}&key={admin.key}"
    )
    read = ("subscribe", "orders", "--start", "earliest", "--count", "1")
    assert run(*read, "--servers", url)[:2] == (0, "0\t\tbread\n")
    variables = {
        "LIFTBRIDGE_SERVERS": broker_address,
        "LIFTBRIDGE_TLS_CA": certificates.ca,
        "LIFTBRIDGE_TLS_CERT": admin.cert,
        "LIFTBRIDGE_TLS_KEY": certificates.locked(admin),
        "LIFTBRIDGE_TLS_KEY_PASSWORD": PASSWORD,
    }
    assert run(*read, **variables)[:2] == (0, "0\t\tbread\n")
    # A password goes with whatever else asks for TLS.
    password = {"LIFTBRIDGE_TLS_KEY_PASSWORD": PASSWORD}
    locked = certificates.locked(admin)
    assert run(*read, "--servers", url.replace(str(admin.key), str(locked)), **password)[0] == 0
    assert run(*read, *servers, *flags[:-1], locked, **password)[0] == 0
    # This one asks each broker by itself.
    assert run("partitions", "show", "orders", "0", *servers, *flags)[0] == 0


def test_what_is_wrong_is_said(
    run: Run, broker_address: str, certificates: Certificates, tmp_path: Path
) -> None:
    ask = ("streams", "list", "--servers", broker_address)
    code, _, err = run(*ask)
    assert code == 1
    assert "requires TLS" in err
    code, _, err = run(*ask, "--tls-ca", certificates.ca)
    assert code == 1
    assert "give --tls-cert and --tls-key" in err
    code, _, err = run(*ask, "--tls")  # with the system's authorities
    assert code == 1
    assert "an authority that is not trusted" in err
    code, _, err = run(*ask, "--tls-key", "key.pem")
    assert code == 2
    assert "key requires cert" in err
    code, _, err = run("streams", "list", "--servers", "liftbridge+tls://a?key_password=hush")
    assert code == 2
    assert "LIFTBRIDGE_TLS_KEY_PASSWORD" in err
    assert "hush" not in err
    code, _, err = run("broker", "--port", "0", "--tls-cert", "-----BEGIN hush")
    assert code == 2
    assert "hush" not in err
    code, _, err = run("broker", "--port", "0", "--tls-cert", tmp_path / "none.pem")
    assert code == 1
    assert "none.pem cannot be used for TLS: No such file or directory" in err
    code, _, err = run("broker", "--port", "0", "--tls-key", "key.pem")
    assert code == 2
    assert "need --tls-cert" in err
