"""Batches of a producer are stored once and in order, whatever happens to requests and answers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from liftbridge_aio.durable_streams.core.producer_table import ProducerState, Verdict, judge
from liftbridge_aio.durable_streams.core.producer_window import Batch, BatchState, Phase, Window
from liftbridge_aio.errors import LiftbridgeError

ENDS = {BatchState.STORED, BatchState.FAILED, BatchState.SKIPPED}


class Request:
    """An attempt that the network has: it may arrive late, more than once is another attempt."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.epoch, self.seq = batch, batch.epoch, batch.seq


class ProducerMachine(RuleBasedStateMachine):
    """A window against the table of a server, with a network that delays and loses."""

    @initialize(auto_claim=st.booleans(), most=st.integers(1, 4))
    def begin(self, auto_claim: bool, most: int) -> None:
        self.window = Window(0, most, auto_claim=auto_claim)
        self.most = most
        self.number = 0
        self.auto_claim = auto_claim
        self.foreign: set[int] = set()
        """Epochs that another producer has taken."""
        self.state: ProducerState | None = None
        self.log: list[Batch] = []
        self.network: list[Request] = []
        """Requests that the server has not seen."""
        self.answers: list[tuple[Batch, Verdict, int | None]] = []
        self.batches: list[Batch] = []
        self.lost: list[Batch] = []
        """Batches whose attempt was given up, to be sent again."""

    def _send(self) -> None:
        for batch in self.window.to_send():
            self.network.append(Request(batch))
        assert sum(batch.state is BatchState.IN_FLIGHT for batch in self.batches) <= self.most

    @precondition(lambda self: self.window.phase is not Phase.FAILED)
    @rule()
    def add(self) -> None:
        items = [b"%d.%d" % (self.number, n) for n in range(4)]
        batch = Batch(b",".join(items), items)
        self.number += 1
        self.batches.append(batch)
        self.window.add(batch)
        self._send()

    @precondition(lambda self: self.network)
    @rule(data=st.data())
    def arrives(self, data: st.DataObject) -> None:
        """A request arrives, perhaps out of order."""
        request = self.network.pop(data.draw(st.integers(0, len(self.network) - 1)))
        decision = judge(self.state, request.epoch, request.seq)
        self.state = decision.state
        if decision.verdict is Verdict.ACCEPTED:
            self.log.append(request.batch)
        current = self.state.epoch if self.state else None
        batch = request.batch
        is_awaited = batch.state is BatchState.IN_FLIGHT and (batch.epoch, batch.seq) == (
            request.epoch,
            request.seq,
        )
        if is_awaited and batch not in self.lost and not self._has_answer(batch):
            self.answers.append((batch, decision.verdict, current))

    def _has_answer(self, batch: Batch) -> bool:
        return any(batch is each for each, _, _ in self.answers)

    @precondition(lambda self: self.network or self.answers)
    @rule(data=st.data(), reaches_server=st.booleans())
    def connection_is_lost(self, data: st.DataObject, reaches_server: bool) -> None:
        """An attempt gets no answer; its request may still arrive. It is sent again at once."""
        waiting = [batch for batch in self.batches if batch.state is BatchState.IN_FLIGHT]
        if not waiting:
            return
        batch = data.draw(st.sampled_from(waiting))
        batch.note_unsure()
        self.answers = [each for each in self.answers if each[0] is not batch]
        if not reaches_server:
            self.network = [each for each in self.network if each.batch is not batch]
        self.network.append(Request(batch))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def answered(self, data: st.DataObject) -> None:
        batch, verdict, current = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        error = LiftbridgeError(verdict.name)
        if verdict in {Verdict.ACCEPTED, Verdict.DUPLICATE}:
            is_duplicate = verdict is Verdict.DUPLICATE
            done = self.window.stored(batch, duplicate=is_duplicate)
        elif verdict is Verdict.STALE_EPOCH:
            done = self.window.refused_as_stale(batch, current, error)
        elif verdict is Verdict.SEQUENCE_GAP:
            batch.maybe_stored = False
            done = self.window.refused_as_gap(batch, error)
        else:
            done = self.window.failed(batch, error)
        assert all(each.state in ENDS for each in done)
        self._send()

    @precondition(lambda self: self.network)
    @rule(data=st.data())
    def is_too_large(self, data: st.DataObject) -> None:
        """A request arrives, and the server looks at nothing but its size."""
        request = self.network.pop(data.draw(st.integers(0, len(self.network) - 1)))
        batch = request.batch
        is_awaited = batch.state is BatchState.IN_FLIGHT and (batch.epoch, batch.seq) == (
            request.epoch,
            request.seq,
        )
        if not is_awaited or self._has_answer(batch):
            return
        items = list(batch.items)
        middle = len(items) // 2
        parts = (items[:middle], items[middle:]) if middle else ()
        halves = [Batch(b",".join(each), each) for each in parts]
        done = self.window.refused_as_too_large(batch, halves, LiftbridgeError("too large"))
        if batch.state is BatchState.SPLIT:
            index = self.batches.index(batch)
            self.batches[index : index + 1] = halves
        assert all(each.state in ENDS for each in done)
        self._send()

    @precondition(lambda self: self.state is not None)
    @rule()
    def another_producer_takes_over(self) -> None:
        assert self.state is not None
        self.state = ProducerState(self.state.epoch + 1, 0)
        self.foreign.add(self.state.epoch)

    @precondition(lambda self: self.window.phase is Phase.FAILED and not len(self.window))
    @rule()
    def restart(self) -> None:
        self.window.restart()

    @invariant()
    def nothing_is_stored_twice(self) -> None:
        if hasattr(self, "log"):
            assert len(set(map(id, self.log))) == len(self.log)

    @invariant()
    def what_counts_as_stored_is(self) -> None:
        for batch in getattr(self, "batches", ()):
            if batch.state is BatchState.STORED:
                # Two producers may take the same epoch. This is seen unless an answer was lost, and
                # mended if the producer may claim epochs.
                is_mistaken = batch.epoch in self.foreign and (
                    batch.maybe_stored or not self.auto_claim
                )
                assert batch in self.log or is_mistaken

    @invariant()
    def what_failed_for_certain_is_not_stored(self) -> None:
        for batch in getattr(self, "batches", ()):
            if batch.state in ENDS - {BatchState.STORED} and not batch.maybe_stored:
                assert batch not in self.log

    @invariant()
    def order_is_kept(self) -> None:
        if hasattr(self, "log"):
            numbers = [float(item) for batch in self.log for item in batch.items]
            assert numbers == sorted(numbers)

    @invariant()
    def something_is_under_way_while_there_is_work(self) -> None:
        window = getattr(self, "window", None)
        if window is not None and len(window) and window.phase is not Phase.FAILED:
            assert any(batch.state is BatchState.IN_FLIGHT for batch in self.batches)


def test_a_repeat_after_a_lost_answer_claims_no_epoch() -> None:
    window = Window(0, 5, auto_claim=True)
    window.add(Batch(b"1"))
    [batch] = window.to_send()
    batch.maybe_stored = True
    assert window.stored(batch, duplicate=True) == [batch]
    assert (window.phase, window.epoch, batch.state) == (Phase.OPEN, 0, BatchState.STORED)


TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(stateful_step_count=60, deadline=None)
