"""Exactly once over journals of framed messages: the API of Gazette's published guide.

- `files`: Keep journals in files, one each.
- `message`: Messages of journals, and what comes with them when they are read.
- `partitions`: Keep journals in partitions of Liftbridge, a frame in each message.
- `publisher`: Publish messages to journals, each alone or several in a transaction.
- `readers`: Iterate over the messages of a journal: all of them, or those that are committed.
- `sequencer`: The sequencer of committed messages, under the names of Gazette's published guide.
"""

from liftbridge_aio.transactions.core.framing import (
    CSV,
    FIXED_HEADER_BYTES,
    FIXED_PROTOBUF,
    FIXED_WORD,
    JSON_LINES,
    CsvFrameable,
    Decoder,
    Framing,
    JsonFrameable,
    ProtoFrameable,
    framing_for,
    register_framing,
)
from liftbridge_aio.transactions.core.mapping import (
    Journal,
    fnv1a,
    modulo_mapping,
    random_mapping,
    rendezvous_mapping,
)
from liftbridge_aio.transactions.core.uuid import (
    NIL_UUID,
    Clock,
    Flags,
    build_uuid,
    clock_at,
    parse_uuid,
)

from .files import FileJournals
from .message import CsvRecord, Envelope, JsonMessage, Message, Validator
from .partitions import PartitionJournals
from .publisher import AckIntent, Appender, Publisher, new_producer_id
from .readers import ReadCommittedIter, ReadUncommittedIter, Source, StreamSource
from .sequencer import Outcome, ProducerState, ReplayRange, Sequencer

__all__ = [
    "CSV",
    "FIXED_HEADER_BYTES",
    "FIXED_PROTOBUF",
    "FIXED_WORD",
    "JSON_LINES",
    "NIL_UUID",
    "AckIntent",
    "Appender",
    "Clock",
    "CsvFrameable",
    "CsvRecord",
    "Decoder",
    "Envelope",
    "FileJournals",
    "Flags",
    "Framing",
    "Journal",
    "JsonFrameable",
    "JsonMessage",
    "Message",
    "Outcome",
    "PartitionJournals",
    "ProducerState",
    "ProtoFrameable",
    "Publisher",
    "ReadCommittedIter",
    "ReadUncommittedIter",
    "ReplayRange",
    "Sequencer",
    "Source",
    "StreamSource",
    "Validator",
    "build_uuid",
    "clock_at",
    "fnv1a",
    "framing_for",
    "modulo_mapping",
    "new_producer_id",
    "parse_uuid",
    "random_mapping",
    "register_framing",
    "rendezvous_mapping",
]


def __dir__() -> list[str]:
    return __all__
