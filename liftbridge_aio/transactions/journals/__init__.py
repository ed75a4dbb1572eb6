"""Exactly once over journals of framed messages: the API of Gazette's published guide.

- `message`: Messages that carry UUIDs, and what comes with them when they are read.
- `publisher`: Publishes messages, alone or in transactions.
- `readers`: Iterates over all messages of a journal, or over those that are committed.
- `sequencer`: Sequences messages under the names of the guide.
- `files`: Keeps journals in files.
- `partitions`: Keeps journals in partitions of Liftbridge.
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
    JournalsFunction,
    KeyFunction,
    MappingFunction,
    fnv1a,
    modulo_mapping,
    random_mapping,
    rendezvous_mapping,
)

from .files import FileJournals
from .message import CsvRecord, Envelope, JsonMessage, Message, NewMessage, Validator
from .partitions import PartitionJournals
from .publisher import AckIntent, Appender, Publisher, new_producer_id
from .readers import ReadCommittedIter, ReadUncommittedIter, Source, StreamSource
from .sequencer import Sequencer

__all__ = [
    "CSV",
    "FIXED_HEADER_BYTES",
    "FIXED_PROTOBUF",
    "FIXED_WORD",
    "JSON_LINES",
    "AckIntent",
    "Appender",
    "CsvFrameable",
    "CsvRecord",
    "Decoder",
    "Envelope",
    "FileJournals",
    "Framing",
    "Journal",
    "JournalsFunction",
    "JsonFrameable",
    "JsonMessage",
    "KeyFunction",
    "MappingFunction",
    "Message",
    "NewMessage",
    "PartitionJournals",
    "ProtoFrameable",
    "Publisher",
    "ReadCommittedIter",
    "ReadUncommittedIter",
    "Sequencer",
    "Source",
    "StreamSource",
    "Validator",
    "fnv1a",
    "framing_for",
    "modulo_mapping",
    "new_producer_id",
    "random_mapping",
    "register_framing",
    "rendezvous_mapping",
]
