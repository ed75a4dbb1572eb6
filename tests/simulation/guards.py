"""Guards of the code, and the code without them: what the simulation must find.

A guard is a piece of a module's text, and what stands there without it. It is taken out before the
module is imported, in a process of its own.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

PACKAGE: Final = "liftbridge_aio"


class Guard(NamedTuple):
    """A guard.

    Attributes:
        what: what it sees to.
        module: where it stands, below the package.
        text: it, which stands there once.
        without: what stands there without it.
        program: one that relies on it.
        flaws: those of the servers, as `--flaws` has them; none: those that a seed draws.
    """

    what: str
    module: str
    text: str
    without: str
    program: str
    flaws: str = ""


GUARDS: Final[dict[str, Guard]] = {
    "unfinished": Guard(
        "a stored position does not count the message that is being processed",
        "_subscribe.decoder",
        "        last = self.last_delivered\n        before_list, end_of_list = self._last_list\n",
        "        return self.last_delivered\n        before_list, end_of_list = self._last_list\n",
        "DurableReading",
    ),
    "repeats": Guard(
        "what a reader has delivered is not delivered again",
        "_subscribe.core.position",
        "        if offset <= self._floor:\n            repeats",
        "        if offset < 0:\n            repeats",
        "Reading",
    ),
    "health": Guard(
        "a silent connection is checked, and given up",
        "net.connection_pool",
        'connection.fail(f"the health check failed: {failure.text}")',
        "pass",
        "Reading",
    ),
    "leader": Guard(
        "metadata is fetched again when a leader does not answer as one",
        "net.leader_call",
        "renewal = self._refresh([self._led[0]])",
        "renewal = asyncio.get_running_loop().create_future()",
        "Grouping",
    ),
    "rejoin": Guard(
        "an expelled member joins again",
        "groups.core.membership",
        "        self._move(GroupState.REJOINING)\n",
        "        return\n",
        "Grouping",
    ),
    "ack deadline": Guard(
        "a publish whose ack does not come fails in time",
        "_publish.deadlines",
        "                self._expire(loop.time())",
        "                pass",
        "Reading",
    ),
    "fence": Guard(
        "a writer whose log was claimed by another writes no more",
        "transactions.claimed_log",
        "if found.kind is Kind.CLAIM or found.writer != self._writer:",
        "if False:",
        "Invoicing",
    ),
    "rewind": Guard(
        "an aborted transaction takes its subscription back",
        "transactions.transaction",
        "            positions.rewind(subscription)",
        "            pass",
        "Invoicing",
    ),
    "inherited acks": Guard(
        "a producer writes the acks that the one before it owed",
        "transactions.producer",
        "intents = checkpoints.inherited.intents",
        "intents: tuple[AckIntent, ...] = ()",
        "Invoicing",
    ),
    "unfinished transactions": Guard(
        "the next owner of a partition ends the transactions of the one before",
        "queue.acks_writer",
        "await self._end_transactions(claim.acks)",
        "pass",
        "Receipting",
    ),
    "duplicates": Guard(
        "committed readers show a message once that was sent twice",
        "transactions.core.visibility",
        "        if clock <= outside.get(producer, -1):",
        "        if False:",
        "Producing",
    ),
    "keys": Guard(
        "a message waits for the one of its key before it",
        "queue.core.ack_window",
        "        if key not in self._line:\n            self._line[key] = None\n"
        "            return False\n        waiting",
        "        if True:\n            self._line[key] = None\n"
        "            return False\n        waiting",
        "Queueing",
    ),
    "dead letter": Guard(
        "a message is settled after its dead letter is stored",
        "queue.giving_up",
        "                await store()\n",
        "                return\n",
        "Queueing",
    ),
    "claim": Guard(
        "acks of a queue are stored at the offset that the owner expects",
        "queue.acks_store",
        "            expected_offset=offset,\n            retry=Retry(),",
        "            retry=Retry(),",
        "Receipting",
    ),
    "gateway": Guard(
        "a gateway appends at the offset that it has decided for",
        "durable_streams.gateway.followed_log",
        "                    expected_offset=offset,\n                )\n            except",
        "                )\n            except",
        "Serving",
    ),
    "copies": Guard(
        "a bridge publishes each message at the offset that it expects",
        "bridge.exact_target",
        "publish(record, self._partition, self._next + number)",
        "publish(record, self._partition)",
        "Mirroring",
    ),
    "known copies": Guard(
        "a bridge does not publish again what it finds in the target",
        "bridge.exact_target",
        "return number <= self._copied or number in self._further",
        "return False",
        "Mirroring",
    ),
    "end of the target": Guard(
        "a bridge reads in the target how far it was copied",
        "bridge.exact_target",
        "        if times:\n",
        "        if False:\n",
        "Mirroring",
    ),
    "synced messages": Guard(
        "no index on the disk counts messages that are not there",
        "broker.storage.disk_segment",
        "        self._files.sync(self._file)\n        replace_file",
        "        replace_file",
        "Reading",
        "unsynced_disks",
    ),
    "synced files": Guard(
        "a file is replaced by one that is on the disk",
        "broker.storage.atomic_files",
        "            os.fsync(file.fileno())",
        "            pass",
        "Reading",
        "unsynced_disks",
    ),
    "synced journal": Guard(
        "a stream or an ISR that changes is on the disk before it changes",
        "broker.storage.journal",
        "            self._files.sync(self._file)\n        except",
        "            pass\n        except",
        "Reading",
        "unsynced_disks",
    ),
    "recovery": Guard(
        "a broker that starts looks for messages after those that the index counts",
        "broker.storage.segment_recovery",
        "    index = _scan_file(path, size, files)\n    stored = stored_index(path)\n",
        "    index = stored_index(path) or _scan_file(path, size, files)\n    stored = None\n",
        "Booking",
        "synced_disks",
    ),
}


def path_of(guard: Guard) -> Path:
    """Return the file in which a guard stands."""
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None
    assert found.submodule_search_locations
    root = Path(found.submodule_search_locations[0])
    return root.joinpath(*guard.module.split(".")).with_suffix(".py")


class _Loader(SourceFileLoader):
    """Loads a module without a guard."""

    guard: Guard

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        text = Path(self.path).read_text(encoding="utf-8")
        assert text.count(self.guard.text) == 1, f"{self.guard.what}: it does not stand there once"
        changed = text.replace(self.guard.text, self.guard.without)
        return compile(changed, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the module of a guard."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != f"{PACKAGE}.{self._guard.module}":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        loader = _Loader(fullname, spec.origin)
        loader.guard = self._guard
        spec.loader = loader
        return spec


def take_out(name: str) -> None:
    """Let this process, which has not imported the package yet, have it without a guard."""
    sys.meta_path.insert(0, _Finder(GUARDS[name]))
