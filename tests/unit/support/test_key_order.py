"""The judge of a queue that keeps the order of a key."""

from __future__ import annotations

from support.key_order import Step, out_of_order


def test_the_judge_of_a_queue_sees_what_is_delivered_too_soon() -> None:
    by_key = {b"a": [b"1", b"3"], b"b": [b"2"]}
    good = [Step(b"1", ended=False), Step(b"2", ended=False), Step(b"1", ended=True)]
    assert not out_of_order(by_key, [*good, Step(b"3", ended=False), Step(b"1", ended=False)])
    [wrong] = out_of_order(by_key, [*good[:2], Step(b"3", ended=False)])
    assert wrong == "b'3' was delivered before b'1' of its key was handled"
