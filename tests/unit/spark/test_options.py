from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import AckPolicy, StreamPartition
from liftbridge_aio.options import ClientOptions
from liftbridge_aio.spark.core.connection_options import _CLIENT_FIELDS, ConnectionOptions
from liftbridge_aio.spark.core.kafka_options import _OF_THE_CLIENT, _OF_THE_CONNECTOR
from liftbridge_aio.spark.core.offsets import EARLIEST_OFFSET, LATEST_OFFSET
from liftbridge_aio.spark.core.option_table import READ_NAMES, WRITE_NAMES, UnknownOption
from liftbridge_aio.spark.core.options import (
    Delivery,
    ExtraColumns,
    OnMalformed,
    ReadOptions,
    WriteOptions,
)
from liftbridge_aio.spark.core.positions import (
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
    NoOffsetStrategy,
    check_covers,
)
from liftbridge_aio.spark.core.selection import Assigned, Pattern, Selection, Streams, existing
from liftbridge_aio.spark.errors import InvalidOption, StreamMissing
from liftbridge_aio.tls import TLS
from support.examples import examples

MINUTE_NS = 60 * 10**9
FULL_READ = {
    "servers": "one:9292, two",
    "subscribe": "orders, totals",
    "startingOffsets": "latest",
    "startingOffsetsByTimestampStrategy": "latest",
    "includeHeaders": "true",
    "includeSubject": "TRUE",
    "includeTimestampNanos": "true",
    "maxOffsetsPerTrigger": "50000",
    "maxBytesPerTrigger": "1000000",
    "minOffsetsPerTrigger": "20000",
    "maxTriggerDelay": "5m",
    "minPartitions": "8",
    "maxRecordsPerPartition": "1000",
    "failOnDataLoss": "false",
    "arrowBatchRows": "1024",
    "onMalformed": "Skip",
    "readTimeout": "2.5",
    "liftbridge.call_timeout": "7",
    "liftbridge.dataLane": "0",
}


def stream_read(**options: str) -> ReadOptions:
    return ReadOptions.parse({"servers": "one", "stream": "orders"} | options, streaming=True)


def batch_read(**options: str) -> ReadOptions:
    return ReadOptions.parse({"servers": "one", "stream": "orders"} | options, streaming=False)


def selected(**options: str) -> Selection:
    return ReadOptions.parse({"servers": "one"} | options, streaming=True).selection


def test_every_option_of_a_streaming_read_is_understood() -> None:
    assert ReadOptions.parse(FULL_READ, streaming=True) == ReadOptions(
        connection=ConnectionOptions(
            ("one:9292", "two"), (("call_timeout", "7"), ("data_lane", "0"))
        ),
        selection=Streams(("orders", "totals")),
        starting=Edge.LATEST,
        starting_strategy=NoOffsetStrategy.LATEST,
        columns=ExtraColumns(headers=True, subject=True, timestamp_nanos=True),
        max_offsets_per_trigger=50_000,
        max_bytes_per_trigger=1_000_000,
        min_offsets_per_trigger=20_000,
        max_trigger_delay=300,
        min_partitions=8,
        max_records_per_partition=1000,
        fail_on_data_loss=False,
        arrow_batch_rows=1024,
        on_malformed=OnMalformed.SKIP,
        read_timeout=2.5,
    )


def test_what_is_left_out_has_the_defaults_of_kafkas_source() -> None:
    stream, batch = stream_read(), batch_read()
    assert stream.starting is Edge.LATEST
    assert batch.starting is Edge.EARLIEST
    assert batch.ending is Edge.LATEST
    assert stream.fail_on_data_loss
    assert stream.columns == ExtraColumns()
    assert stream.max_offsets_per_trigger is None


@settings(max_examples=examples(20))
@given(st.data())
def test_capitals_in_names_do_not_matter(data: st.DataObject) -> None:
    options = {}
    for name, text in FULL_READ.items():
        upper = data.draw(st.lists(st.booleans(), min_size=len(name), max_size=len(name)))
        changed = (c.upper() if up else c.lower() for c, up in zip(name, upper, strict=True))
        options["".join(changed)] = text
    assert ReadOptions.parse(options, streaming=True) == ReadOptions.parse(
        FULL_READ, streaming=True
    )


@pytest.mark.parametrize(
    "options",
    [
        ReadOptions.parse(FULL_READ, streaming=True),
        stream_read(startingOffsets='{"orders":{"0":5}}'),
        stream_read(startingOffsetsByTimestamp='{"orders":{"0":5}}'),
        WriteOptions.parse({"servers": "one"}, streaming=True),
    ],
)
def test_options_travel_to_executors(options: object) -> None:
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("options", "selection"),
    [
        ({"stream": "orders"}, Streams(("orders",))),
        ({"subscribe": "b,a ,b,"}, Streams(("b", "a"))),
        ({"path": "orders"}, Streams(("orders",))),
        ({"subscribePattern": "or.*"}, Pattern("or.*")),
        (
            {"assign": '{"b":[1],"a":[1,0,1]}'},
            Assigned((StreamPartition("a", 0), StreamPartition("a", 1), StreamPartition("b", 1))),
        ),
    ],
)
def test_what_is_read_can_be_said_in_several_ways(
    options: dict[str, str], selection: Selection
) -> None:
    assert selected(**options) == selection


COUNTS = {"orders": 2, "order": 1, "__cursors": 1, "totals": 1}


@pytest.mark.parametrize(
    ("selection", "places"),
    [
        (Streams(("totals", "orders")), [("orders", 0), ("orders", 1), ("totals", 0)]),
        (Pattern("order"), [("order", 0)]),
        (Pattern(".*r.*"), [("order", 0), ("orders", 0), ("orders", 1)]),
        (Pattern("nothing"), []),
        (Assigned((StreamPartition("orders", 1),)), [("orders", 1)]),
    ],
)
def test_a_selection_finds_its_partitions(
    selection: Selection, places: list[tuple[str, int]]
) -> None:
    assert selection.partitions(COUNTS) == places


@pytest.mark.parametrize(
    ("selection", "words", "left"),
    [
        (Streams(("orders", "gone")), ["'gone'", "create it"], [("orders", 0), ("orders", 1)]),
        (
            Assigned((StreamPartition("orders", 0), StreamPartition("orders", 2))),
            ["partition 2 of stream 'orders'", "has 2", "assign"],
            [("orders", 0)],
        ),
        (Assigned((StreamPartition("gone", 0),)), ["'gone'", "assign"], []),
    ],
)
def test_what_does_not_exist_is_named_and_can_be_left_out(
    selection: Selection, words: list[str], left: list[tuple[str, int]]
) -> None:
    with pytest.raises(StreamMissing) as refusal:
        selection.partitions(COUNTS)
    assert all(word in str(refusal.value) for word in words)
    assert existing(selection, COUNTS).partitions(COUNTS) == left


@pytest.mark.parametrize(
    ("options", "position"),
    [
        ({"startingOffsets": " Earliest "}, Edge.EARLIEST),
        ({"startingOffsets": "-2"}, Edge.EARLIEST),
        ({"startingOffsets": "-1"}, Edge.LATEST),
        (
            {"startingOffsets": '{"orders":{"0":-2,"1":-1,"2":5}}'},
            AtOffsets(
                "startingOffsets",
                {
                    StreamPartition("orders", 0): EARLIEST_OFFSET,
                    StreamPartition("orders", 1): LATEST_OFFSET,
                    StreamPartition("orders", 2): 5,
                },
            ),
        ),
        ({"startingTimestamp": "60000"}, AtTime("startingTimestamp", MINUTE_NS)),
        ({"startingTimestamp": "1970-01-01T00:01Z"}, AtTime("startingTimestamp", MINUTE_NS)),
        ({"startingTimestamp": "1970-01-01T01:01+01:00"}, AtTime("startingTimestamp", MINUTE_NS)),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"0":60000,"1":"1970-01-01T00:01Z"}}'},
            AtTimes(
                "startingOffsetsByTimestamp",
                {StreamPartition("orders", 0): MINUTE_NS, StreamPartition("orders", 1): MINUTE_NS},
            ),
        ),
    ],
)
def test_a_start_is_an_edge_offsets_or_a_time(options: dict[str, str], position: object) -> None:
    assert stream_read(**options).starting == position
    ending = {name.replace("starting", "ending"): text for name, text in options.items()}
    if position is not Edge.EARLIEST and "-2" not in str(options):
        read_back = batch_read(**ending).ending
        assert type(read_back) is type(position)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "earlist"}, ["startingOffsets is 'earlist'", '{"orders":{"0":23']),
        ({"startingOffsets": "5"}, ["startingOffsets is '5'"]),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, ["orders/0", "-3"]),
        ({"startingOffsets": '{"other":{"0":3}}'}, ["stream='other'", "not read"]),
        ({"startingTimestamp": "soon"}, ["startingTimestamp", "'soon'", "milliseconds"]),
        ({"startingTimestamp": "-1"}, ["startingTimestamp", "'-1'"]),
        ({"startingTimestamp": "9" * 30}, ["startingTimestamp"]),
        ({"startingTimestamp": "2026-01-31T12:00:00"}, ["startingTimestamp", "time zone"]),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":true}}'}, ["ByTimestamp", "True"]),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":[]}}'}, ["ByTimestamp", "[]"]),
        ({"startingOffsetsByTimestamp": "60000"}, ["ByTimestamp is '60000'", "JSON object"]),
        (
            {"startingOffsets": "latest", "startingTimestamp": "5"},
            ["startingOffsets and startingTimestamp exclude each other"],
        ),
        ({"startingOffsetsByTimestampStrategy": "skip"}, ["error or latest", "'skip'"]),
        ({"subscribe": "x"}, ["stream and subscribe exclude each other"]),
        ({"stream": " , "}, ["names no stream"]),
        ({"stream": "a b"}, ["stream:", "blanks"]),
        ({"maxOffsetsPerTrigger": "0"}, ["maxOffsetsPerTrigger", "'0'"]),
        ({"maxOffsetsPerTrigger": "many"}, ["maxOffsetsPerTrigger", "'many'"]),
        ({"maxBytesPerTrigger": "9" * 19}, ["maxBytesPerTrigger"]),
        ({"minPartitions": "1000000000"}, ["minPartitions"]),
        ({"failOnDataLoss": "no"}, ["failOnDataLoss must be true or false, not 'no'"]),
        ({"readTimeout": "0"}, ["readTimeout", "above 0"]),
        ({"readTimeout": "nan"}, ["readTimeout", "above 0"]),
        ({"readTimeout": "9" * 400}, ["readTimeout", "above 0"]),
        ({"readTimeout": "5 weeks"}, ["readTimeout", "such as 90s or 2m"]),
        ({"positionsGroup": " "}, ["positionsGroup is empty"]),
        ({"onMalformed": "fail"}, ["onMalformed must be error or skip or emit, not 'fail'"]),
        ({"servers": ""}, ["servers is missing"]),
        ({"servers": "http://x"}, ["servers:", "liftbridge+tls://"]),
        ({"liftbridge.bootstrap.servers": "x"}, ["exclude each other"]),
        ({"liftbridge.callTimeout": "soon"}, ["liftbridge.callTimeout", "number", "'soon'"]),
        ({"liftbridge.callTimeout": "0"}, ["liftbridge.callTimeout", "longer than 0"]),
        ({"liftbridge.hook": "x"}, ["liftbridge.hook", "text"]),
        ({"liftbridge.callTimeout": "-1"}, ["liftbridge.callTimeout is a number of seconds"]),
        ({"liftbridge.maxInFlight": "-1"}, ["liftbridge.maxInFlight must be from 1"]),
        ({"liftbridge.tlsCert": " "}, ["liftbridge.tlsCert is empty"]),
        ({"liftbridge.addressMap": "x"}, ["liftbridge.addressMap cannot be written as text"]),
        ({"maxOffsetsPerTrigger": "-1"}, ["option maxOffsetsPerTrigger must be a whole number"]),
        ({"liftbridge.colour": "x"}, ["no option liftbridge.colour; see the fields of ClientOpt"]),
        ({"startingOffsets": '{"orders":{"0":1,"0":5}}'}, ["startingOffsets", "'0'", "twice"]),
        ({"startingOffsets": '{"a":{"0":1},"a":{"1":5}}'}, ["startingOffsets", "'a'", "twice"]),
    ],
)
@pytest.mark.parametrize("spell", [str, str.lower], ids=["ours", "Spark's"])
def test_what_makes_no_sense_is_refused_with_the_name_of_the_option(
    options: dict[str, str], words: list[str], spell: Callable[[str], str]
) -> None:
    """Also where Spark made the names lower case."""
    with pytest.raises(InvalidOption) as refusal:
        stream_read(**{spell(name): text for name, text in options.items()})
    for word in ["[LIFTBRIDGE_INVALID_OPTION]", *words]:
        assert word in str(refusal.value)


@pytest.mark.parametrize(
    "assign",
    ["", "[]", "{}", '{"a":[]}', '{"a":0}', '{"a":[-1]}', '{"a":["0"]}', '{"a":[true]}'],
)
def test_an_assignment_of_no_partitions_is_refused(assign: str) -> None:
    with pytest.raises(InvalidOption, match=re.escape('must be like {"orders":[0,1]}')):
        selected(assign=assign)


def test_an_assignment_names_a_stream_once() -> None:
    with pytest.raises(InvalidOption, match=r"assign.*'s' occurs twice"):
        selected(assign='{"s":[0],"s":[1]}')


def test_a_time_to_end_before_the_time_to_start_is_refused() -> None:
    with pytest.raises(InvalidOption, match="startingTimestamp is later than endingTimestamp"):
        batch_read(startingTimestamp="2026-01-02T00:00:00Z", endingTimestamp="5")
    same = batch_read(startingTimestamp="5", endingTimestamp="5")
    assert same.starting != same.ending  # the option that says so


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"'\(' is not a regular expression"):
        selected(subscribePattern="(")


def test_something_has_to_be_read() -> None:
    with pytest.raises(InvalidOption, match="set stream, subscribe, subscribePattern or assign"):
        selected()


@pytest.mark.parametrize("text", ["latest", "-1", '{"orders":{"0":3,"1":-1}}'])
def test_a_batch_read_from_the_end_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="startingOffsets is the latest"):
        batch_read(startingOffsets=text)


@pytest.mark.parametrize("text", ["earliest", '{"orders":{"0":3,"1":-2}}'])
def test_a_batch_read_to_the_beginning_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="endingOffsets is the earliest"):
        batch_read(endingOffsets=text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("endingOffsets", "latest"),
        ("endingTimestamp", "5"),
        ("endingOffsetsByTimestamp", '{"orders":{"0":5}}'),
        ("pushdownFilters", "true"),
    ],
)
def test_a_stream_does_not_end(name: str, text: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name} is for batch queries only"):
        stream_read(**{name: text})
    batch_read(**{name: text})


@pytest.mark.parametrize(
    "name",
    ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"],
)
def test_a_batch_read_has_no_triggers(name: str) -> None:
    with pytest.warns(UnknownOption, match=f"{name} is for streaming queries"):
        batch_read(**{name: "5"})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300),
        ("5min", 300),
        (" 90S ", 90),
        ("1500", 1.5),  # as Kafka's connector has it: milliseconds
        ("1500ms", 1.5),
        ("2500us", 0.0025),
        ("2h", 7200),
        ("1d", 86400),
        ("0", 0),
    ],
)
def test_a_delay_is_written_as_for_kafkas_connector(text: str, seconds: float) -> None:
    read = stream_read(minOffsetsPerTrigger="5", maxTriggerDelay=text)
    assert read.max_trigger_delay == seconds


@pytest.mark.parametrize("text", ["", "m", "-5s", "1.5.0s", "5 m", "5w", "soon", "9" * 400 + "d"])
def test_another_delay_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidOption, match="maxTriggerDelay must be a duration such as 30s or 15m"
    ):
        stream_read(minOffsetsPerTrigger="5", maxTriggerDelay=text)


def test_the_least_a_batch_has_is_not_above_the_most() -> None:
    with pytest.raises(
        InvalidOption, match=r"minOffsetsPerTrigger \(6\) .*maxOffsetsPerTrigger \(5"
    ):
        stream_read(minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
    read = stream_read(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
    assert (read.min_offsets_per_trigger, read.max_trigger_delay) == (5, 15 * 60)


def test_a_delay_without_a_least_size_of_batches_does_nothing() -> None:
    with pytest.warns(UnknownOption, match="maxTriggerDelay has no effect without minOffsetsPer"):
        stream_read(maxTriggerDelay="5m")


def test_offsets_have_to_name_every_stream_and_assigned_partition() -> None:
    with pytest.raises(InvalidOption, match="lacks") as refusal:
        ReadOptions.parse(
            {"servers": "one", "subscribe": "a,b", "startingOffsets": '{"a":{"0":3}}'},
            streaming=True,
        )
    assert refusal.value.stream == "b"
    with pytest.raises(InvalidOption, match="lacks") as refusal:
        ReadOptions.parse(
            {"servers": "one", "assign": '{"a":[0,3]}', "startingOffsets": '{"a":{"0":3}}'},
            streaming=True,
        )
    assert (refusal.value.stream, refusal.value.partition) == ("a", 3)


def test_offsets_are_held_against_the_partitions_that_there_are() -> None:
    position = AtOffsets("startingOffsets", {StreamPartition("a", 0): 1})
    check_covers(position, [StreamPartition("a", 0)])
    check_covers(Edge.LATEST, [StreamPartition("a", 0)])
    with pytest.raises(InvalidOption, match=r"startingOffsets lacks .*'a', partition=1"):
        check_covers(position, [StreamPartition("a", 0), StreamPartition("a", 1)])
    with pytest.raises(InvalidOption, match=r"names a partition that is not read .*partition=0"):
        check_covers(position, [])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribeTo", "subscribe"),
        ("liftbridge.calltimeuot", "liftbridge.callTimeout"),
        ("liftbridge.tlscafile", "liftbridge.tlsCa"),
        ("liftbridge.maxinflightbyte", "liftbridge.maxInFlightBytes"),
        ("failOnDataloss_", "failOnDataLoss"),
        ("liftbridge.bootstrap.server", "liftbridge.bootstrap.servers"),
    ],
)
def test_near_misses_are_refused(name: str, meant: str) -> None:
    with pytest.raises(InvalidOption, match=f"no option {name}; did you mean {meant}\\?"):
        stream_read(**{name: "x"})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("includeTimestampType", "does not offer"),
        ("ackPolicy", "is for writing"),
        ("colour", "does not know the option"),
    ],
)
def test_what_does_nothing_is_told(name: str, told: str) -> None:
    with pytest.warns(UnknownOption, match=told) as recorded:
        stream_read(**{name.lower(): "x"})  # Spark makes the names lower case
    assert f" {name} " in f"{str(recorded[0].message).replace(';', ' ')} "


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("kafka.bootstrap.servers", "here it is servers"),
        ("bootstrap.servers", "here it is servers"),
        ("kafka.security.protocol", "here it is liftbridge.tls"),
        ("security.protocol", "here it is liftbridge.tls"),
        ("kafka.ssl.truststore.location", "here it is liftbridge.tlsCa, a PEM file"),
        ("kafka.ssl.key.password", "here it is the variable LIFTBRIDGE_TLS_KEY_PASSWORD"),
        ("kafka.sasl.mechanism", "leave it out: clients authenticate by certificates"),
        ("kafka.acks", "here it is ackPolicy"),
        ("kafka.linger.ms", "leave it out: the source liftbridge has nothing like it"),
        ("kafka.group.id", "here it is positionsGroup, for a position that others see"),
        ("groupIdPrefix", "leave it out: the position of a query is in its checkpoint"),
        ("kafkaConsumer.pollTimeoutMs", "here it is readTimeout, such as 60s"),
        ("fetchOffset.numRetries", "here it is readTimeout, such as 60s"),
    ],
)
def test_what_is_meant_for_kafka_is_refused_with_its_name_here(name: str, advice: str) -> None:
    for parse in (stream_read, batch_read, write):
        with pytest.raises(InvalidOption) as refusal:
            parse(**{name.lower(): "x"})
        assert f"] {name} is an option for Kafka; {advice}" in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("250ms", 0.25), (" 2H ", 7200)]
)
def test_durations_may_have_units(text: str, seconds: float) -> None:
    read = stream_read(readTimeout=text, **{"liftbridge.callTimeout": text})
    assert read.read_timeout == seconds
    assert read.connection.client_options().call_timeout == seconds
    assert write(publishTimeout=text).publish_timeout == seconds


def test_what_is_here_for_an_option_of_kafka_is_an_option() -> None:
    for advice in filter(None, (*_OF_THE_CLIENT.values(), *_OF_THE_CONNECTOR.values())):
        if not advice.startswith("the variable "):
            name = advice.partition(",")[0].partition(" ")[0]
            field = name.removeprefix("liftbridge.").lower()
            assert name in {*READ_NAMES, *WRITE_NAMES} or field in _CLIENT_FIELDS


def test_options_that_spark_itself_reads_are_no_surprise() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream_read(checkpointLocation="/tmp/x", queryName="totals")  # noqa: S108 - nothing is opened
        WriteOptions.parse(
            {"servers": "one", "checkpointLocation": "x", "path": "totals"}, streaming=True
        )


@pytest.mark.parametrize("names", [READ_NAMES, WRITE_NAMES])
def test_no_option_is_a_near_miss_of_another(names: tuple[str, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            with pytest.raises(InvalidOption) as refusal:
                ReadOptions.parse({name: "\0"}, streaming=True)
            assert "did you mean" not in str(refusal.value)


@pytest.mark.parametrize("spelling", ["call_timeout", "callTimeout", "calltimeout"])
def test_the_clients_options_are_passed_on(spelling: str) -> None:
    connection = ConnectionOptions.parse(
        {"liftbridge.bootstrap.servers": "one", f"liftbridge.{spelling}": "7.5"}
    )
    assert connection.servers == ("one",)
    assert connection.client_options() == ClientOptions(call_timeout=7.5)


@pytest.mark.parametrize("field", fields(ClientOptions))
def test_each_option_of_the_client_is_passed_on_or_refused(field: Field[Any]) -> None:
    options = {"servers": "one", f"liftbridge.{field.name}": "1"}
    if isinstance(field.default, bool | int | float) or field.name == "resubscribe_timeout":
        made = ConnectionOptions.parse(options).client_options()
        assert getattr(made, field.name) == 1
    elif field.name == "tls":
        assert ConnectionOptions.parse(options).client_options().tls == TLS()
    else:
        with pytest.raises(InvalidOption, match=r"liftbridge\.\w+ cannot be written"):
            ConnectionOptions.parse(options)


def test_equal_connections_are_one_key() -> None:
    one = ConnectionOptions.parse(
        {"servers": "a,b", "liftbridge.ackTimeout": "1", "liftbridge.call_timeout": "2"}
    )
    other = ConnectionOptions.parse(
        {"Liftbridge.Call_Timeout": "2", "SERVERS": "a, b", "liftbridge.ack_timeout": "1"}
    )
    assert {one: 1}[other] == 1


def write(**options: str) -> WriteOptions:
    return WriteOptions.parse({"servers": "one"} | options, streaming=True)


def test_every_option_of_a_write_is_understood() -> None:
    assert write(
        stream="totals",
        ackPolicy="Leader",
        maxInFlight="100",
        publishTimeout="5",
        includeWriteId="true",
    ) == WriteOptions(
        connection=ConnectionOptions(("one",)),
        stream="totals",
        ack_policy=AckPolicy.LEADER,
        max_in_flight=100,
        publish_timeout=5.0,
        include_write_id=True,
    )


def test_rows_count_as_written_once_all_replicas_have_them_by_default() -> None:
    assert write().ack_policy is AckPolicy.ALL
    assert write().stream is None


@pytest.mark.parametrize("name", ["stream", "topic", "path"])
def test_the_target_of_a_write_can_be_said_in_several_ways(name: str) -> None:
    assert write(**{name: "totals"}).stream == "totals"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ackPolicy": "none"}, ["ackPolicy must be all or leader, not 'none'"]),
        ({"stream": "a", "topic": "b"}, ["stream and topic exclude each other"]),
        ({"stream": ""}, ["stream:", "empty"]),
        ({"maxInFlight": "0"}, ["maxInFlight"]),
        ({"ackPolcy": "all"}, ["did you mean ackPolicy?"]),
        ({"servers": ","}, ["servers is missing"]),
    ],
)
def test_a_write_that_makes_no_sense_is_refused(options: dict[str, str], words: list[str]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        write(**options)
    assert all(word in str(refusal.value) for word in words)


def test_columns_are_known_before_it_is_known_how_they_are_read() -> None:
    options: dict[str, Any] = {"includeheaders": "True"}
    assert ExtraColumns.parse(options) == ExtraColumns(headers=True)
    with pytest.raises(InvalidOption, match="includeSubject must be true or false, not '1'"):
        ExtraColumns.parse({"includeSubject": "1"})


EXACTLY = {"servers": "a", "stream": "s", "delivery": "exactly_once"}


def test_exactly_once_is_asked_for() -> None:
    usual = WriteOptions.parse({"servers": "a", "stream": "s"}, streaming=True)
    assert usual.delivery is Delivery.AT_LEAST_ONCE
    assert WriteOptions.parse(EXACTLY, streaming=True).delivery is Delivery.EXACTLY_ONCE
    named = {**EXACTLY, "writeid": "Monday", "decisionstream": "decisions"}
    found = WriteOptions.parse(named, streaming=False)
    assert (found.write_id, found.decision_stream) == ("Monday", "decisions")


@pytest.mark.parametrize(
    ("more", "streaming", "told"),
    [
        ({"delivery": "twice"}, True, "at_least_once or exactly_once"),
        ({"ackpolicy": "leader"}, True, "ackPolicy=all"),
        ({"writeid": "Monday"}, True, "for batch writes"),
        ({"writeid": " "}, False, "writeId is empty"),
        ({"decisionstream": "d"}, False, "without writeId"),
        ({"decisionstream": "a b"}, True, "decisionStream"),
        ({"delivery": "at_least_once", "writeid": "Monday"}, False, "delivery=exactly_once"),
        ({"delivery": "at_least_once", "decisionstream": "d"}, True, "delivery=exactly_once"),
    ],
)
def test_what_does_not_fit_exactly_once_is_refused(
    more: dict[str, str], streaming: bool, told: str
) -> None:
    with pytest.raises(InvalidOption, match=told):
        WriteOptions.parse({**EXACTLY, **more}, streaming=streaming)
