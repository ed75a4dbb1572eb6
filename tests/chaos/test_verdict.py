"""What a run must show, and its table."""

from __future__ import annotations

from chaos.verdict import FaultRecord, Recovery, Verdict, percentile
from liftbridge_aio.testing import History


def verdict(*faults: FaultRecord) -> Verdict:
    return Verdict(seed=7, began=90.0, ended=300.0, faults=[*faults])


def fault(*seconds: float, kind: str = "stop_broker", is_spoiled: bool = False) -> FaultRecord:
    recoveries = [Recovery(each, "Reading") for each in seconds]
    return FaultRecord(1, kind, 100.0, 110.0, recoveries, is_spoiled)


def test_programs_work_again_within_the_bound() -> None:
    found = verdict(fault(1.0, 4.9), fault(9.0, kind="kill_process"))
    found.judge(5.0, of_processes=("kill_process",))
    assert not found.failures
    found = verdict(fault(1.0, 5.1))
    found.judge(5.0)
    assert "5.10 s (Reading)" in found.failures[0]
    assert "BROKEN, seed 7" in found.text()


def test_a_fault_of_which_no_recovery_was_measured_breaks_the_run() -> None:
    found = verdict(fault())
    found.judge(5.0)
    assert "nobody measured" in found.failures[0]


def test_faults_that_the_servers_spoiled_are_none() -> None:
    found = verdict(fault(9.0, is_spoiled=True), fault(1.0, kind="cut"))
    found.judge(5.0)
    assert not found.failures
    assert found.kinds == {"cut"}
    assert found.text().startswith("Chaos of 210 s, seed 7: 1 faults of 1 kinds")


def test_messages_count_for_the_fault_in_which_they_were_sent() -> None:
    history = History()
    for number, at in enumerate((95.0, 99.0, 101.0)):
        history.sent(b"%d" % number, 0, time=at)
    history.acked(b"0", 0, time=96.0)
    history.acked(b"1", 0, time=105.0)
    history.unknown(b"2", 0, time=105.0)
    found = verdict(fault(1.0))
    found.events = [*history.events]
    peace, stopped, total = found.rows()
    assert peace[:6] == ["before the first fault", "-", "2", "2", "0", "0"]
    assert stopped == ["stop_broker", "1", "1", "0", "1", "0", "1.00 s", "1.00 s", "1.00 s"]
    assert total[:6] == ["all", "1", "3", "2", "1", "0"]


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
