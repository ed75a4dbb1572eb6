"""Source and sink over TLS, on a real server that wants certificates of its clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from conftest import PINNED
from liftbridge_aio import TLS, Client
from liftbridge_aio.spark.connection import WorkerConnection
from liftbridge_aio.spark.core.connection_options import ConnectionOptions
from liftbridge_aio.spark.errors import InvalidOption
from support.certificates import PASSWORD, Certificates, Pair
from support.servers.tls_node import server_settings, start
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP: Final = 60
"""Seconds after which a query has failed."""
URL: Final = "liftbridge+tls://a:1,b:2?ca=ca.pem&cert=me.pem&key=me-key.pem&server_name=c.example"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and what it has signed."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def mine(certificates: Certificates) -> Pair:
    """The certificate of the client."""
    return certificates.signed("spark")


@pytest.fixture(scope="module")
def address(
    server_binary: Path,
    tmp_path_factory: pytest.TempPathFactory,
    certificates: Certificates,
    mine: Pair,
) -> Iterator[str]:
    """The address of a server that wants certificates."""
    settings = server_settings(certificates, certificates.server, wants_certificates=True)
    tls = TLS(ca=certificates.ca, cert=mine.cert, key=mine.key)
    node = start(server_binary, tmp_path_factory.mktemp("tls-server"), PINNED, settings, tls)
    yield node.address
    node.stop()


def test_rows_go_over_tls_there_and_back(
    spark: SparkSession,
    certificates: Certificates,
    mine: Pair,
    address: str,
    checkpoint: str,
) -> None:
    url = f"liftbridge+tls://{address}?ca={certificates.ca}&cert={mine.cert}&key={mine.key}"
    options = {
        "servers": address,
        "liftbridge.tlsCa": str(certificates.ca),
        "liftbridge.tlsCert": str(mine.cert),
        "liftbridge.tlsKey": str(mine.key),
    }
    rows = [(f"k{number}", f"v{number}") for number in range(40)]
    with LogClient(url) as log:
        first, second = log.create("first", partitions=2), log.create("second")
        written = spark.createDataFrame(rows, "key string, value string")
        written.write.format("liftbridge").mode("append").options(**options, stream=first).save()
        (
            spark.readStream.format("liftbridge")
            .options(servers=url, stream=first, startingOffsets="earliest")
            .load()
            .select("key", "value")
            .writeStream.format("liftbridge")
            .options(**options, stream=second, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
            .awaitTermination(STOP)
        )
        assert sorted((m.key.decode(), m.value.decode()) for m in log.read_all(second)) == sorted(
            rows
        )
    read = spark.read.format("liftbridge").options(servers=url, stream=second).load().collect()
    assert sorted((bytes(row.key).decode(), bytes(row.value).decode()) for row in read) == sorted(
        rows
    )


def test_a_server_that_is_not_trusted_is_told_at_once(
    spark: SparkSession, certificates: Certificates, address: str
) -> None:
    began = time.monotonic()
    with pytest.raises(Exception, match=r"TLS with the servers .*liftbridge\.tlsCa"):
        spark.read.format("liftbridge").options(
            servers=f"liftbridge+tls://{address}?ca={certificates.other_ca}", stream="first"
        ).load().collect()
    assert time.monotonic() - began < 20  # readTimeout is 60


def test_an_encrypted_key_is_opened_with_the_password_of_the_process(
    certificates: Certificates, mine: Pair, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = certificates.locked(mine)
    url = f"liftbridge+tls://{address}?ca={certificates.ca}&cert={mine.cert}&key={key}"
    monkeypatch.setenv("LIFTBRIDGE_TLS_KEY_PASSWORD", PASSWORD)
    connection = WorkerConnection(ConnectionOptions.parse({"servers": url}))
    try:
        assert connection.run(Client.ping, 10) < 10
    finally:
        connection.close()


def test_a_url_and_options_say_the_same() -> None:
    by_url = ConnectionOptions.parse({"servers": URL})
    by_options = ConnectionOptions.parse(
        {
            "servers": "a:1, b:2",
            "liftbridge.tls": "true",
            "liftbridge.tlsCa": "ca.pem",
            "liftbridge.tlsCert": "me.pem",
            "liftbridge.tlsKey": "me-key.pem",
            "liftbridge.tlsServerName": "c.example",
        }
    )
    assert by_url == by_options
    assert by_url.servers == ("a:1", "b:2")
    assert by_url.client_options().tls == TLS(
        ca="ca.pem", cert="me.pem", key="me-key.pem", server_name="c.example"
    )
    assert ConnectionOptions.parse({"servers": "liftbridge+tls://a"}).client_options().tls == TLS()
    assert ConnectionOptions.parse({"servers": "liftbridge://a"}).client_options().tls is None


def test_the_password_of_the_key_comes_from_the_environment() -> None:
    environ = {"LIFTBRIDGE_TLS_KEY_PASSWORD": "hush"}
    options = ConnectionOptions.parse({"servers": URL})
    tls = options.client_options(environ).tls
    assert tls == TLS(
        ca="ca.pem",
        cert="me.pem",
        key="me-key.pem",
        server_name="c.example",
        key_password="hush",  # noqa: S106 - which is none
    )
    assert "hush" not in repr(options)
    assert ConnectionOptions.parse({"servers": "a:1"}).client_options(environ).tls is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"servers": "a:1", "liftbridge.tlsKeyPassword": "hush"}, "LIFTBRIDGE_TLS_KEY_PASSWORD"),
        ({"servers": "a:1", "liftbridge.tlsKey": "me-key.pem"}, "liftbridge.tls"),
        ({"servers": "a:1", "liftbridge.tls": "perhaps"}, "0 or 1"),
        ({"servers": "a:1", "liftbridge.tlsCa": ""}, "liftbridge.tlsCa is empty"),
        ({"servers": URL, "liftbridge.tls": "false"}, "contradict"),
        ({"servers": "liftbridge://a", "liftbridge.tlsCa": "ca.pem"}, "contradict"),
        ({"servers": "liftbridge://a", "liftbridge.tls": "true"}, "contradict"),
        ({"servers": "liftbridge+tls://a?token=hush"}, "password"),
        ({"servers": "kafka://a"}, "liftbridge"),
    ],
)
def test_contradictions_and_secrets_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption, match=text) as refusal:
        ConnectionOptions.parse(options)
    assert "hush" not in str(refusal.value)


@pytest.mark.parametrize("switch", ["false", "0", " False "])
def test_a_plain_url_agrees_with_tls_switched_off(switch: str) -> None:
    options = ConnectionOptions.parse({"servers": "liftbridge://a", "liftbridge.tls": switch})
    assert options.client_options().tls is None
