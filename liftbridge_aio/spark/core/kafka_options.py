"""Options of Spark's Kafka connector, and the options to use instead. Pure.

A pipeline that is ported by changing the format still sets them. If they were ignored, it would run
without encryption, or with other limits than its author expects.
"""

from __future__ import annotations

from typing import Final

_TIMEOUT: Final = "readTimeout, such as 60s"
_CERTIFICATE: Final = "liftbridge.tlsCert and liftbridge.tlsKey, PEM files"
_AUTHORITY: Final = "liftbridge.tlsCa, a PEM file"
_PASSWORD: Final = "the variable LIFTBRIDGE_TLS_KEY_PASSWORD where tasks run"  # noqa: S105

_OF_THE_CLIENT: Final = {
    "bootstrap.servers": "servers",
    "group.id": "positionsGroup, for a position that others see; the query itself has a checkpoint",
    "isolation.level": "isolationLevel, which is read_committed unless you set it",
    "acks": "ackPolicy",
    "request.timeout.ms": "liftbridge.callTimeout, such as 30s",
    "default.api.timeout.ms": "liftbridge.callTimeout, such as 30s",
    "delivery.timeout.ms": "publishTimeout, such as 30s",
    "socket.connection.setup.timeout.ms": "liftbridge.connectTimeout, such as 30s",
    "max.in.flight.requests.per.connection": "maxInFlight, in rows",
    "max.request.size": "liftbridge.maxMessageBytes",
    "security.protocol": "liftbridge.tls",
    "ssl.truststore.location": _AUTHORITY,
    "ssl.truststore.certificates": _AUTHORITY,
    "ssl.keystore.location": _CERTIFICATE,
    "ssl.keystore.certificate.chain": _CERTIFICATE,
    "ssl.keystore.key": _CERTIFICATE,
    "ssl.key.password": _PASSWORD,
    "ssl.keystore.password": _PASSWORD,
}
"""Settings of Kafka's client, which Spark takes with the prefix `kafka.`."""

_OF_THE_CONNECTOR: Final = {
    "kafkaConsumer.pollTimeoutMs": _TIMEOUT,
    "fetchOffset.numRetries": _TIMEOUT,
    "fetchOffset.retryIntervalMs": _TIMEOUT,
    "groupIdPrefix": None,
}

_REASONS: Final = {
    "sasl.": "clients authenticate by certificates, see liftbridge.tlsCert",
    "ssl.": "see the options liftbridge.tls…",
    "group": "the position of a query is in its checkpoint",
}
"""The reasons for missing options, by the prefix of the name."""

_PREFIX: Final = "kafka."
_WITHOUT_PREFIX: Final = ("bootstrap.", "security.", "ssl.", "sasl.")
"""Beginnings of names that only settings of Kafka's client have."""


def meant_for_kafka(name: str) -> str | None:
    """Return advice for an option of Spark's Kafka connector; None for any other option.

    Args:
        name: as users write it, in any case.
    """
    lower = name.lower()
    for known, here in _OF_THE_CONNECTOR.items():
        if lower == known.lower():
            return _advice(known, lower, here)
    setting = lower.removeprefix(_PREFIX)
    if setting == lower and not lower.startswith(_WITHOUT_PREFIX):
        return None
    return _advice(lower, setting, _OF_THE_CLIENT.get(setting))


def _advice(name: str, setting: str, here: str | None) -> str:
    if here is not None:
        return f"{name} is an option for Kafka; here it is {here}"
    reasons = (why for start, why in _REASONS.items() if setting.startswith(start))
    why = next(reasons, "the source liftbridge has nothing like it")
    return f"{name} is an option for Kafka; leave it out: {why}"
