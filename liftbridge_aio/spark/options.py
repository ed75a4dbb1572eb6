"""Options of the data source, read from Spark's text and checked as a whole. Pure; all pickle."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final, Self

from liftbridge_aio.arguments import INT32_MAX
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import AckPolicy
from liftbridge_aio.names import stream_name_problem
from liftbridge_aio.options import ClientOptions
from liftbridge_aio.server_url import Servers, parse_servers, split_servers
from liftbridge_aio.tls import TLS

from .errors import InvalidOption
from .offsets import StreamPartition, json_value
from .option_table import (
    BATCH_ONLY_NAMES,
    CLIENT_PREFIX,
    CONNECTION_NAMES,
    ENDING_NAMES,
    SELECTION_NAMES,
    STARTING_NAMES,
    STRATEGY_NAME,
    STREAM_ONLY_NAMES,
    TARGET_NAMES,
    check_names,
    chosen,
    folded,
    one_of,
    refuse_near_miss,
    seconds_above_zero,
    switch,
    warn,
    whole_number,
)
from .positions import (
    Edge,
    NothingSoNew,
    Position,
    check_covers,
    check_order,
    mentions,
    places_of,
    read_position,
)
from .selection import Assigned, Pattern, Selection, Streams

_ACK_POLICIES: Final = {"all": AckPolicy.ALL, "leader": AckPolicy.LEADER}
_BATCH_ROWS: Final = 8192
_MOST_TASKS: Final = 100_000
"""More than Spark can plan."""
_READ_TIMEOUT: Final = 60.0
_MAX_IN_FLIGHT: Final = 16_384
_PUBLISH_TIMEOUT: Final = 30.0
_STRATEGIES: Final = {strategy.value: strategy for strategy in NothingSoNew}


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The servers and how the client talks to them. Hashable, so that a connection can be kept."""

    servers: tuple[str, ...]
    """Seeds, `host:port`."""
    settings: tuple[tuple[str, str], ...] = ()
    """Fields of `ClientOptions` and their text, sorted."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read `servers` and what is below `liftbridge.`, such as `liftbridge.callTimeout`.

        Raises:
            InvalidOption: no server is given, or an address or value makes no sense.
        """
        options = folded(options)
        name = chosen(options, CONNECTION_NAMES)
        texts = split_servers(options[name.lower()]) if name else []
        if not texts:
            raise InvalidOption(
                "the option servers is missing; give host:port, separated by commas"
            )
        settings = _client_settings(options)
        try:
            servers = parse_servers(texts)
            settings |= _tls_settings(servers, settings)
        except InvalidRequest as error:
            text = f"{name}: {error.message}"
            raise InvalidOption(text) from error
        try:
            TLS.from_env({_variable(field): text for field, text in settings.items()})
        except InvalidRequest as error:
            text = f"the options liftbridge.tls…: {error.message}"
            raise InvalidOption(text) from error
        named = tuple(texts) if servers.secure is None else servers.addresses
        return cls(named, tuple(sorted(settings.items())))

    def client_options(self) -> ClientOptions:
        """Make the options of the client that connects to the servers.

        What opens an encrypted key is asked of the environment of the process that connects, as
        options are written into plans and logs.
        """
        variables = {_variable(field): text for field, text in self.settings}
        password = os.environ.get(_KEY_PASSWORD)
        if password is not None and _variable("tls_cert") in variables:
            variables[_KEY_PASSWORD] = password
        return ClientOptions.from_env(variables)


_KEY_PASSWORD: Final = "LIFTBRIDGE_TLS_KEY_PASSWORD"  # noqa: S105 - the name of a variable
_TLS_FIELDS: Final = ("tls_ca", "tls_cert", "tls_key", "tls_server_name")
_CLIENT_FIELDS: Final = {
    name.replace("_", ""): name
    for name in (*(field.name for field in fields(ClientOptions)), *_TLS_FIELDS)
}


def _tls_settings(servers: Servers, settings: Mapping[str, str]) -> dict[str, str]:
    """Say as settings what the URL of the servers says of TLS."""
    if servers.secure is None:
        return {}
    wanted = settings.get("tls", "").strip().lower()
    fields_said = not servers.secure and any(field in settings for field in _TLS_FIELDS)
    if fields_said or wanted not in ({"", "1", "true"} if servers.secure else {"", "0", "false"}):
        raise InvalidRequest("the URL and the options liftbridge.tls… contradict each other")
    said = {f"tls_{field}": text for field, text in servers.tls_values}
    return {"tls": str(servers.secure).lower(), **said}


def _variable(field: str) -> str:
    return f"LIFTBRIDGE_{field.upper()}"


def _client_settings(options: Mapping[str, str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name, text in options.items():
        if not name.startswith(CLIENT_PREFIX) or name in CONNECTION_NAMES:
            continue
        field = _CLIENT_FIELDS.get(name.removeprefix(CLIENT_PREFIX).replace("_", ""))
        if "password" in name:
            problem = (
                f"{name}: options are written into plans and logs, so they take no password;"
                f" set the variable {_KEY_PASSWORD} where tasks run"
            )
            raise InvalidOption(problem)
        if field is None:
            ours = (f"{CLIENT_PREFIX}{one}" for one in _CLIENT_FIELDS.values())
            refuse_near_miss(name, (*CONNECTION_NAMES, *ours))
            warn(f"the client has no option {name}; it does nothing")
            continue
        settings[field] = _checked_setting(name, field, text)
    return settings


def _checked_setting(name: str, field: str, text: str) -> str:
    if field in _TLS_FIELDS:  # which make sense together only
        if not text.strip():
            problem = f"{name} is empty; leave it out, or say what it is to be"
            raise InvalidOption(problem)
        return text
    if field in _OBJECT_FIELDS:
        problem = f"{name} cannot be written as text"
        raise InvalidOption(problem)
    try:
        ClientOptions.from_env({_variable(field): text})
    except InvalidRequest as error:
        raise InvalidOption(
            error.message.replace(_variable(field), f"{CLIENT_PREFIX}{field}")
        ) from error
    return text


_OBJECT_FIELDS: Final = frozenset({"backoff", "partitioner", "hook", "address_map"})


@dataclass(frozen=True, slots=True)
class ExtraColumns:
    """Which columns rows have beside key, value, topic, partition, offset and timestamp."""

    headers: bool = False
    """`headers array<struct<key string, value binary>>`."""
    subject: bool = False
    """`subject string`."""
    timestamp_nanos: bool = False
    """`timestampNanos bigint`."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Read `includeHeaders`, `includeSubject` and `includeTimestampNanos`.

        Raises:
            InvalidOption: one is neither true nor false.
        """
        options = folded(options)
        return cls(
            headers=switch(options, "includeHeaders", default=False),
            subject=switch(options, "includeSubject", default=False),
            timestamp_nanos=switch(options, "includeTimestampNanos", default=False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a batch or streaming query reads, and how."""

    connection: ConnectionOptions
    selection: Selection
    starting: Position
    starting_strategy: NothingSoNew = NothingSoNew.ERROR
    """For a start by time."""
    ending: Position = Edge.LATEST
    """Batch only; the end is left out."""
    columns: ExtraColumns = ExtraColumns()
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int | None = None
    """Spark partitions to make at least, where there is enough to split."""
    max_records_per_partition: int | None = None
    """Offsets that one Spark partition has at most."""
    fail_on_data_loss: bool = True
    arrow_batch_rows: int = _BATCH_ROWS
    pushdown_filters: bool = False
    """Batch only."""
    read_timeout: float = _READ_TIMEOUT
    """Seconds without a message after which the reading of a range fails."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> Self:
        """Read and check the options of a query; warns of those that do nothing.

        Raises:
            InvalidOption: a value makes no sense, is missing, or does not go with another.
        """
        check_names(options, reading=True)
        options = folded(options)
        _check_mode(options, streaming=streaming)
        selection = _selection(options)
        starting = _starting(options, selection, streaming=streaming)
        ending = _ending(options, selection)
        check_order(starting, ending)
        return cls(
            connection=ConnectionOptions.parse(options),
            selection=selection,
            starting=starting,
            starting_strategy=one_of(
                options, STRATEGY_NAME, _STRATEGIES, default=NothingSoNew.ERROR
            ),
            ending=ending,
            columns=ExtraColumns.parse(options),
            max_offsets_per_trigger=whole_number(options, "maxOffsetsPerTrigger", default=None),
            max_bytes_per_trigger=whole_number(options, "maxBytesPerTrigger", default=None),
            min_partitions=whole_number(options, "minPartitions", default=None, most=_MOST_TASKS),
            max_records_per_partition=whole_number(options, "maxRecordsPerPartition", default=None),
            fail_on_data_loss=switch(options, "failOnDataLoss", default=True),
            arrow_batch_rows=whole_number(
                options, "arrowBatchRows", default=_BATCH_ROWS, most=INT32_MAX
            ),
            pushdown_filters=switch(options, "pushdownFilters", default=False),
            read_timeout=seconds_above_zero(options, "readTimeout", default=_READ_TIMEOUT),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Where rows are written, and when they count as written."""

    connection: ConnectionOptions
    stream: str | None = None
    """Overrides the column `stream` or `topic`; None: the column has to be there."""
    ack_policy: AckPolicy = AckPolicy.ALL
    max_in_flight: int = _MAX_IN_FLIGHT
    """Messages of one task that wait for their acks at once, at most."""
    publish_timeout: float = _PUBLISH_TIMEOUT
    """Seconds that a task waits without any ack, or for a server at its start, before it fails."""
    include_write_id: bool = False
    """Whether each row gets headers by which its repeats are known; see `write_id`."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> Self:  # noqa: ARG003 - so far both take the same
        """Read and check the options of a write; warns of those that do nothing.

        Raises:
            InvalidOption: a value makes no sense, is missing, or does not go with another.
        """
        check_names(options, reading=False)
        options = folded(options)
        return cls(
            connection=ConnectionOptions.parse(options),
            stream=_target(options),
            ack_policy=one_of(options, "ackPolicy", _ACK_POLICIES, default=AckPolicy.ALL),
            max_in_flight=whole_number(options, "maxInFlight", default=_MAX_IN_FLIGHT),
            publish_timeout=seconds_above_zero(options, "publishTimeout", default=_PUBLISH_TIMEOUT),
            include_write_id=switch(options, "includeWriteId", default=False),
        )


def _check_mode(options: Mapping[str, str], *, streaming: bool) -> None:
    if streaming:
        for name in BATCH_ONLY_NAMES:
            if name.lower() in options:
                text = f"{name} is for batch reads; a streaming query has no use for it"
                raise InvalidOption(text)
    else:
        for name in STREAM_ONLY_NAMES:
            if name.lower() in options:
                warn(f"{name} is for streaming queries and does nothing in a batch read")


def _selection(options: Mapping[str, str]) -> Selection:
    name = chosen(options, SELECTION_NAMES)
    if name is None:
        raise InvalidOption(
            "nothing says what to read; give one of stream, subscribe, subscribePattern, assign"
        )
    text = options[name.lower()]
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            problem = f"subscribePattern {text!r} is no regular expression: {error}"
            raise InvalidOption(problem) from error
        return Pattern(text)
    if name == "assign":
        return _assigned(text)
    streams = _names(text)
    if not streams:
        problem = f"{name} is {text!r} and names no stream"
        raise InvalidOption(problem)
    for stream in streams:
        _check_stream_name(name, stream)
    return Streams(streams)


def _assigned(text: str) -> Assigned:
    try:
        places = frozenset(_places(json_value(text)))
        if not places:
            raise ValueError("it names no partition")
    except ValueError as error:
        problem = f'assign is {text!r}, and should look like {{"orders":[0,1]}}: {error}'
        raise InvalidOption(problem) from error
    for place in places:
        _check_stream_name("assign", place.stream)
    return Assigned(tuple(sorted(places)))


def _places(assigned: object) -> Iterator[StreamPartition]:
    if not isinstance(assigned, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - bad JSON is a bad value
    for stream, partitions in assigned.items():
        if not isinstance(partitions, list) or not partitions:
            text = f"stream {stream!r} has no list of partitions"
            raise ValueError(text)
        for partition in partitions:
            if type(partition) is not int or not 0 <= partition <= INT32_MAX:
                text = f"{partition!r} is no number of a partition"
                raise ValueError(text)
            yield StreamPartition(stream, partition)


def _check_stream_name(option: str, stream: str) -> None:
    problem = stream_name_problem(stream)
    if problem is not None:
        text = f"{option}: {problem}"
        raise InvalidOption(text, stream=stream)


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def _starting(options: Mapping[str, str], selection: Selection, *, streaming: bool) -> Position:
    name = chosen(options, STARTING_NAMES)
    if name is None:
        return Edge.LATEST if streaming else Edge.EARLIEST
    position = read_position(name, options[name.lower()])
    if not streaming and mentions(position, Edge.LATEST):
        text = f"{name} is the latest offset, from which a batch read has nothing to read"
        raise InvalidOption(text)
    _check_named(position, selection)
    return position


def _ending(options: Mapping[str, str], selection: Selection) -> Position:
    name = chosen(options, ENDING_NAMES)
    if name is None:
        return Edge.LATEST
    position = read_position(name, options[name.lower()])
    if mentions(position, Edge.EARLIEST):
        text = f"{name} is the earliest offset, before which there is nothing to read"
        raise InvalidOption(text)
    _check_named(position, selection)
    return position


def _check_named(position: Position, selection: Selection) -> None:
    """Check the partitions that a position names as far as it goes without asking a server."""
    named = places_of(position)
    if named is None:
        return
    if isinstance(selection, Assigned):
        check_covers(position, selection.places)
    elif isinstance(selection, Streams):
        # Any partition stands for its stream: how many there are is not known yet.
        check_covers(position, {place for place in named if place.stream in selection.names})
        missing = set(selection.names) - {place.stream for place in named}
        check_covers(position, {*named, *(StreamPartition(stream, 0) for stream in missing)})


def _target(options: Mapping[str, str]) -> str | None:
    name = chosen(options, TARGET_NAMES)
    if name is None:
        return None
    stream = options[name.lower()].strip()
    _check_stream_name(name, stream)
    return stream
