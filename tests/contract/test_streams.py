"""Creating and deleting streams, and which messages of a subject a stream takes."""

from __future__ import annotations

from liftbridge_aio.wire import proto, rpc
from support.raw import Wire, eventually


async def test_a_stream_made_again_is_another_one(wire: Wire, stream_name: str) -> None:
    await wire.create(stream_name)
    await wire.publish(stream_name, b"old")
    before = await wire.stream(stream_name)
    await wire.delete(stream_name)
    await wire.create(stream_name)

    after = await wire.stream(stream_name)
    assert after.creation_timestamp > before.creation_timestamp
    assert await wire.read(stream_name) == []
    [ack] = await wire.publish(stream_name, b"new")
    assert ack.offset == 0


async def test_a_stream_can_swallow_what_goes_to_a_partition_of_another(
    wire: Wire, stream_name: str
) -> None:
    await wire.create(stream_name, partitions=2)
    await wire.create(f"{stream_name}-thief", subject=f"{stream_name}.1")

    await wire.publish(stream_name, b"to 0", partition=0)
    await wire.publish(stream_name, b"to 1", partition=1)
    stolen = await wire.stored(f"{stream_name}-thief", 1)
    assert [message.value for message in stolen] == [b"to 1"]
    assert stolen[0].stream == f"{stream_name}-thief"


async def test_each_stream_on_a_subject_acks_under_its_own_name(
    wire: Wire, stream_name: str
) -> None:
    names = {f"{stream_name}-{suffix}" for suffix in "abc"}
    for name in names:
        await wire.create(name, subject=stream_name)

    async with wire.publish_session() as session:
        name = min(names)
        await session.send(
            proto.PublishRequest(stream=name, correlation_id="same", expected_offset=-1)
        )
        replies = await session.take(len(names))
    assert {reply.ack.stream for reply in replies if reply.ack} == names
    assert {reply.correlation_id for reply in replies} == {"same"}


async def test_wildcards_take_one_token_or_all_the_rest(wire: Wire, stream_name: str) -> None:
    await wire.create(f"{stream_name}-one", subject=f"{stream_name}.*")
    await wire.create(f"{stream_name}-rest", subject=f"{stream_name}.>")
    await wire.create(f"{stream_name}-middle", subject=f"{stream_name}.*.c")

    for subject in ("a", "a.b", "b.c", "a.b.c"):
        request = proto.PublishToSubjectRequest(
            subject=f"{stream_name}.{subject}", value=subject.encode()
        )
        await wire.call(rpc.PUBLISH_TO_SUBJECT, request)
    expected = {"one": [b"a"], "rest": [b"a", b"a.b", b"b.c", b"a.b.c"], "middle": [b"b.c"]}
    taken = {
        suffix: [
            message.value
            for message in await wire.stored(f"{stream_name}-{suffix}", len(expected[suffix]))
        ]
        for suffix in expected
    }
    assert taken == expected
    [message] = await wire.read(f"{stream_name}-one")
    assert message.subject == f"{stream_name}.a"


async def test_a_publish_to_a_stream_of_a_wildcard_goes_to_the_wildcard_itself(
    wire: Wire, stream_name: str
) -> None:
    await wire.create(stream_name, subject=f"{stream_name}.*")

    [ack] = await wire.publish(stream_name, b"value")
    assert ack.msg_subject == f"{stream_name}.*"


async def test_streams_of_one_group_share_the_messages(wire: Wire, stream_name: str) -> None:
    members = [f"{stream_name}-member-{number}" for number in range(2)]
    for member in members:
        await wire.create(member, subject=stream_name, group="balanced")
    await wire.create(f"{stream_name}-alone", subject=stream_name)
    values = [b"%d" % number for number in range(40)]

    for value in values:
        request = proto.PublishToSubjectRequest(subject=stream_name, value=value)
        await wire.call(rpc.PUBLISH_TO_SUBJECT, request)
    alone = await wire.stored(f"{stream_name}-alone", len(values))
    assert [message.value for message in alone] == values

    async def shares() -> list[list[bytes]]:
        return [[message.value for message in await wire.read(member)] for member in members]

    async def all_arrived() -> bool:
        return sum(map(len, await shares())) == len(values)

    await eventually(all_arrived)
    first, second = await shares()
    assert first
    assert second
    assert sorted(first + second) == sorted(values)
