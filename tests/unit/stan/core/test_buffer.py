from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.stan.core.buffer import Buffer


@dataclass(frozen=True)
class Item:
    sequence: int
    data: bytes


steps = st.lists(
    st.one_of(
        st.builds(Item, st.integers(1, 6), st.binary(max_size=4)),
        st.just("pop"),
        st.integers(1, 6),
        st.just("clear"),
    ),
    max_size=40,
)


@given(steps)
def test_it_holds_what_a_list_would(steps: list[Item | str | int]) -> None:
    buffer: Buffer[Item] = Buffer()
    model: list[Item] = []
    most = 0
    for step in steps:
        if isinstance(step, Item):
            buffer.put(step)
            buffer.note_peaks()
            place = [item.sequence for item in model]
            if step.sequence in place:
                model[place.index(step.sequence)] = step
            else:
                model.append(step)
        elif isinstance(step, int):
            buffer.discard(step)
            model = [item for item in model if item.sequence != step]
        elif step == "clear":
            buffer.clear()
            model.clear()
        else:
            assert buffer.pop() == (model.pop(0) if model else None)
        most = max(most, len(model))
        assert len(buffer) == len(model)
        assert buffer.bytes == sum(len(item.data) for item in model)
        assert all(
            (number in buffer) == (number in {i.sequence for i in model}) for number in range(7)
        )
    assert buffer.max_messages == most
