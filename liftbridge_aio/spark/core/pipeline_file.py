"""Parse files that describe pipelines, and find the line of what is wrong in them. Pure."""

from __future__ import annotations

import difflib
import re
import tomllib
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from os.path import normpath
from pathlib import PurePath
from typing import Any, Final

from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.spark.errors import InvalidOption

from .option_table import COLUMN_NAMES, STARTING_NAMES, STRATEGY_NAME, UnknownOption, folded
from .options import ReadOptions, WriteOptions
from .positions import read_position
from .toml_lines import KeyPath, key_lines, nearest_line

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_INTERVAL: Final = re.compile(r"(\d{1,9}) ?([a-z]+)")
_UNITS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "milliseconds"),
    **dict.fromkeys(("s", "second", "seconds"), "seconds"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "minutes"),
    **dict.fromkeys(("h", "hour", "hours"), "hours"),
    **dict.fromkeys(("d", "day", "days"), "days"),
}
AVAILABLE_NOW: Final = "available now"
_DELIVERIES: Final = ("exactly_once", "at_least_once")
_MODES: Final = ("append", "complete")
_STARTS: Final = ("earliest", "latest")
FAIL, SKIP, DEAD_LETTER = ON_BAD_RECORD = ("fail", "skip", "dead letter")

TOP_KEYS: Final = (
    *("servers", "checkpoint", "trigger", "delivery"),
    *("spark", "sources", "steps", "sinks"),
)
SOURCE_KEYS: Final = (
    *("streams", "pattern", "start", "value", "watermark"),
    *("on_bad_record", "dead_letters", "options"),
)
WATERMARK_KEYS: Final = ("column", "delay")
STEP_KEYS: Final = ("sql", "python")
SINK_KEYS: Final = (
    *("from", "stream", "parquet", "console"),
    *("mode", "delivery", "partition_by", "options"),
)
_KINDS: Final = ("stream", "parquet", "console")
_OWNERS: Final = {"delivery": "stream", "options": "stream", "partition_by": "parquet"}
"""The kind of sink that has a key."""


class PipelineFileError(InvalidRequest):
    """A file that describes a pipeline is wrong; the text names the file and the line."""

    def __init__(self, file: str, line: int | None, problem: str) -> None:
        place = file if line is None else f"{file}, line {line}"
        super().__init__(f"{place}: {problem}")
        self.file, self.line = file, line


@dataclass(frozen=True, slots=True)
class Watermark:
    """Longest delay of rows."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Source:
    """Streams to read."""

    name: str
    options: Mapping[str, str]
    """Options of Spark's source."""
    value: str | None
    """The fields of the value in JSON, as Spark's DDL; None: bytes."""
    watermark: Watermark | None
    on_bad_record: str = FAIL
    """What to do about a value that is not JSON of the fields: `fail`, `skip` or `dead letter`."""
    dead_letters: str | None = None
    """The stream for these values, with `dead letter`."""


@dataclass(frozen=True, slots=True)
class Step:
    """A named result, made of sources and earlier steps."""

    name: str
    sql: str | None
    python: tuple[str, str] | None
    """A file or module, and the name of the function in it."""


@dataclass(frozen=True, slots=True)
class Sink:
    """The target of a result."""

    name: str
    source: str
    """The source or step whose rows are written."""
    kind: str
    """`stream`, `parquet` or `console`."""
    mode: str
    target: str = ""
    """The folder of Parquet files."""
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's sink."""
    dead_letters: bool = False
    """True to write the bad records of the source, in place of the good ones."""


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """A pipeline: sources, steps in their order, and sinks."""

    name: str
    """The file, as it was given."""
    checkpoint: str
    trigger: str | None
    """The interval between batches; None: what is available now."""
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    settings: Mapping[str, str]
    """Settings of the Spark session."""
    lines: Mapping[KeyPath, int]
    unused: tuple[KeyPath, ...] = ()
    """The sources and steps that no sink needs."""

    @property
    def mistakes(self) -> tuple[str, ...]:
        """What is probably a mistake, each with its line."""
        return tuple(
            self.error((kind, name), f"no sink needs the {kind.removesuffix('s')} {name}").message
            for kind, name in self.unused
        )

    def error(self, path: KeyPath, problem: str, offset: int = 0) -> PipelineFileError:
        """Return an error at the line of a key, or some lines after it."""
        line = nearest_line(self.lines, path)
        return PipelineFileError(self.name, None if line is None else line + offset, problem)


def parse_pipeline(
    text: str, name: str, connection: Mapping[str, str], servers: str
) -> PipelineFile:
    """Parse and check a file, without Spark and without servers.

    Args:
        text: its content.
        name: of the file, for errors.
        connection: options of the client.
        servers: addresses, unless the file names some.

    Raises:
        PipelineFileError: it is wrong; the text names the line.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+)", str(error))
        raise PipelineFileError(name, int(found[1]) if found else None, str(error)) from None
    return _Parser(text, name, connection, servers).pipeline(content)


class _Parser:
    def __init__(self, text: str, name: str, connection: Mapping[str, str], servers: str) -> None:
        self._name = name
        self._lines = key_lines(text)
        self._connection = connection
        self._servers = servers
        self._delivery = _DELIVERIES[0]

    def pipeline(self, content: dict[str, Any]) -> PipelineFile:
        self._known(content, (), TOP_KEYS)
        self._servers = self._text(content, (), "servers") or self._servers
        self._delivery = self._one_of(content, (), "delivery", _DELIVERIES)
        trigger = self._text(content, (), "trigger") or AVAILABLE_NOW
        interval = None if trigger == AVAILABLE_NOW else _interval(trigger)
        if trigger != AVAILABLE_NOW and interval is None:
            raise self._wrong(
                ("trigger",),
                f'trigger is "{AVAILABLE_NOW}" or an interval such as "10 seconds" or "10s"',
            )
        checkpoint = self._text(content, (), "checkpoint")
        if checkpoint is None:
            raise self._wrong((), "checkpoint is missing: the folder for the pipeline's position")
        sources = tuple(self._source(*each) for each in self._tables(content, "sources"))
        steps = tuple(self._step(name, table) for name, table in self._tables(content, "steps"))
        names = [source.name for source in sources] + [step.name for step in steps]
        self._check_names(sources, steps)
        sinks = tuple(
            self._sink(name, table, names) for name, table in self._tables(content, "sinks")
        )
        sinks += tuple(
            self._dead_letters(source, sinks)
            for source in sources
            if source.dead_letters is not None
        )
        for what, found in (("sources", sources), ("sinks", sinks)):
            if not found:
                raise self._wrong((), f"there are no {what}; add a table [{what}.NAME]")
        self._check_folders(checkpoint, sinks)
        settings = self._options(content, (), "spark")
        for setting in settings:
            if not setting.startswith("spark."):
                raise self._wrong(("spark", setting), f"{setting} is no setting spark.…")
        return PipelineFile(
            self._name,
            checkpoint,
            interval,
            sources,
            steps,
            sinks,
            settings,
            self._lines,
            _unused(sources, steps, sinks),
        )

    def _check_names(self, sources: tuple[Source, ...], steps: tuple[Step, ...]) -> None:
        """Refuse a name that is there twice: SQL ignores case, and would take the later one."""
        seen: dict[str, str] = {}
        tables = [("sources", each.name) for each in sources]
        for kind, name in (*tables, *(("steps", each.name) for each in steps)):
            other = seen.setdefault(name.lower(), f"the {kind.removesuffix('s')} {name}")
            if other != f"the {kind.removesuffix('s')} {name}":
                raise self._wrong((kind, name), f"{name} has the name of {other}")

    def _source(self, name: str, table: dict[str, Any]) -> Source:
        path = ("sources", name)
        self._known(table, path, SOURCE_KEYS)
        streams, pattern = self._texts(table, path, "streams"), self._text(table, path, "pattern")
        if bool(streams) == (pattern is not None):
            raise self._wrong(path, "a source has either streams or a pattern for their names")
        which = (
            {"subscribe": ",".join(streams)} if pattern is None else {"subscribePattern": pattern}
        )
        options = {
            **self._connection,
            **self._start(table, path),
            **dict.fromkeys(COLUMN_NAMES[:1], "true"),
            **self._options(table, path),
            "servers": self._servers,
            **which,
        }
        with self._checked((*path, "options")):
            ReadOptions.parse(options, streaming=True)
        value = self._text(table, path, "value")
        bad = self._one_of(table, path, "on_bad_record", ON_BAD_RECORD)
        if "on_bad_record" in table and value is None:
            raise self._wrong(
                (*path, "on_bad_record"),
                "on_bad_record is for sources with value, which others do not parse",
            )
        dead_letters = self._text(table, path, "dead_letters")
        if (dead_letters is not None) != (bad == DEAD_LETTER):
            raise self._wrong(
                (*path, "on_bad_record"),
                f'dead_letters is the stream for on_bad_record = "{DEAD_LETTER}"; set both',
            )
        return Source(name, options, value, self._watermark(table, path), bad, dead_letters)

    def _start(self, table: dict[str, Any], path: KeyPath) -> dict[str, str]:
        """Return the options of Spark's source for where the first run begins."""
        start = table.get("start")
        if start is None:
            options = folded(self._options(table, path))
            chosen = any(name.lower() in options for name in STARTING_NAMES)
            return {} if chosen else {"startingOffsets": _STARTS[0]}
        if start in _STARTS:
            return {"startingOffsets": start}
        text = start.isoformat() if isinstance(start, datetime) else start
        with suppress(InvalidOption):
            if isinstance(text, str):
                read_position("startingTimestamp", text)
                # A partition where nothing is as new begins at its end.
                return {"startingTimestamp": text, STRATEGY_NAME: "latest"}
        raise self._wrong(
            (*path, "start"),
            f"start is earliest, latest or a time such as 2026-01-31T12:00:00Z, not {start!r}",
        )

    def _dead_letters(self, source: Source, sinks: tuple[Sink, ...]) -> Sink:
        """Return the sink for the bad records of a source."""
        path: KeyPath = ("sources", source.name, "dead_letters")
        name = f"{source.name}_dead_letters"
        if any(sink.name == name for sink in sinks):
            raise self._wrong(
                path, f"the sink {name} has the name of that for dead letters; rename it"
            )
        options = self._sink_options({}, path, source.dead_letters or "", self._delivery)
        return Sink(name, source.name, "stream", _MODES[0], options=options, dead_letters=True)

    def _watermark(self, table: dict[str, Any], path: KeyPath) -> Watermark | None:
        given = table.get("watermark")
        path = (*path, "watermark")
        if given is None:
            return None
        if not isinstance(given, dict):
            raise self._wrong(path, 'a watermark is { column = "at", delay = "10 seconds" }')
        self._known(given, path, WATERMARK_KEYS)
        column, delay = self._text(given, path, "column"), self._text(given, path, "delay")
        if column is None or delay is None:
            raise self._wrong(path, "a watermark has a column and a delay")
        interval = _interval(delay)
        if interval is None:
            raise self._wrong(path, f'{delay!r} is no interval such as "10 seconds" or "10s"')
        return Watermark(column, interval)

    def _step(self, name: str, table: dict[str, Any]) -> Step:
        path = ("steps", name)
        self._known(table, path, STEP_KEYS)
        sql, python = self._text(table, path, "sql"), self._text(table, path, "python")
        if (sql is None) == (python is None):
            raise self._wrong(path, "a step has either sql or python")
        if python is None:
            return Step(name, sql, None)
        module, colon, function = python.rpartition(":")
        if not colon or not module or not function.isidentifier():
            raise self._wrong(
                (*path, "python"), f'{python!r} is not "file.py:function" or "module:function"'
            )
        return Step(name, None, (module, function))

    def _sink(self, name: str, table: dict[str, Any], names: list[str]) -> Sink:
        path = ("sinks", name)
        self._known(table, path, SINK_KEYS)
        source = self._text(table, path, "from")
        if source is None:
            raise self._wrong(path, "from is missing: the source or step that is written")
        if source not in names:
            raise self._wrong((*path, "from"), _unknown(source, names, "source or step"))
        kinds = [kind for kind in _KINDS if table.get(kind)]
        if len(kinds) != 1:
            raise self._wrong(path, "a sink has one of stream, parquet and console = true")
        kind, mode = kinds[0], self._one_of(table, path, "mode", _MODES)
        if kind == "console":
            if table["console"] is not True:
                raise self._wrong((*path, "console"), "console is true")
        else:
            self._text(table, path, kind)
        if kind == "parquet" and mode != _MODES[0]:
            raise self._wrong((*path, "mode"), "Parquet files can only be appended to")
        for key, owner in (
            ("delivery", "stream"),
            ("partition_by", "parquet"),
            ("options", "stream"),
        ):
            if key in table and kind != owner:
                raise self._wrong((*path, key), f"{key} is for sinks with {owner}")
        options: dict[str, str] = {}
        if kind == "stream":
            delivery = self._one_of(table, path, "delivery", _DELIVERIES, self._delivery)
            options = self._sink_options(table, path, table["stream"], delivery)
        columns = self._texts(table, path, "partition_by")
        target = table["parquet"] if kind == "parquet" else ""
        return Sink(name, source, kind, mode, target, columns, options)

    def _sink_options(
        self, table: dict[str, Any], path: KeyPath, stream: str, delivery: str
    ) -> dict[str, str]:
        """Return the options of Spark's sink."""
        options = {
            **self._connection,
            "delivery": delivery,
            **self._options(table, path),
            "servers": self._servers,
            "stream": stream,
        }
        with self._checked((*path, "options")):
            WriteOptions.parse(options, streaming=True)
        return options

    def _check_folders(self, checkpoint: str, sinks: tuple[Sink, ...]) -> None:
        """Refuse folders within each other: each sink would skip the batches of the other."""
        used = {PurePath(normpath(checkpoint)): "checkpoint"}
        for sink in sinks:
            if sink.kind != "parquet":
                continue
            folder = PurePath(normpath(sink.target))
            for other, user in used.items():
                if folder.is_relative_to(other) or other.is_relative_to(folder):
                    raise self._wrong(
                        ("sinks", sink.name, "parquet"),
                        f"{sink.target} is a folder of {user}, too; give each its own",
                    )
            used[folder] = f"the sink {sink.name}"

    def _tables(self, content: dict[str, Any], name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        tables = content.get(name, {})
        if not isinstance(tables, dict):
            raise self._wrong((name,), f"{name} is a table of tables, such as [{name}.orders]")
        for each, table in tables.items():
            if not _NAME.fullmatch(each):
                raise self._wrong(
                    (name, each), f"{each!r} is no name of letters, digits and underscores"
                )
            if not isinstance(table, dict):
                raise self._wrong((name, each), f"{name}.{each} is a table: [{name}.{each}]")
            yield each, table

    def _known(self, table: Mapping[str, Any], path: KeyPath, keys: Collection[str]) -> None:
        for key in table:
            if key not in keys:
                raise self._wrong((*path, key), _unknown(key, keys, "key"))

    def _text(self, table: Mapping[str, Any], path: KeyPath, key: str) -> str | None:
        value = table.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self._wrong((*path, key), f"{key} must be a text that is not empty")
        return value

    def _texts(self, table: Mapping[str, Any], path: KeyPath, key: str) -> tuple[str, ...]:
        values = table.get(key, [])
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise self._wrong((*path, key), f"{key} must be a list of texts")
        return tuple(values)

    def _one_of(
        self,
        table: Mapping[str, Any],
        path: KeyPath,
        key: str,
        values: tuple[str, ...],
        default: str | None = None,
    ) -> str:
        value = table.get(key, default or values[0])
        if value not in values:
            raise self._wrong((*path, key), f"{key} is {value!r}, not {' or '.join(values)}")
        return str(value)

    def _options(
        self, table: Mapping[str, Any], path: KeyPath, key: str = "options"
    ) -> dict[str, str]:
        given = table.get(key, {})
        if not isinstance(given, dict):
            raise self._wrong((*path, key), f"{key} is a table of names and values")
        for name, value in given.items():
            if not isinstance(value, str | int | float):
                raise self._wrong((*path, key, name), f"{name} is no text, number or boolean")
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in given.items()
        }

    @contextmanager
    def _checked(self, path: KeyPath) -> Iterator[None]:
        """Turn refusals and warnings of options into errors at the line of a key."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnknownOption)
            try:
                yield
            except (InvalidOption, UnknownOption) as error:
                raise self._wrong(path, str(error)) from None

    def _wrong(self, path: KeyPath, problem: str) -> PipelineFileError:
        return PipelineFileError(self._name, nearest_line(self._lines, path), problem)


def _interval(text: str) -> str | None:
    """Return an interval as Spark writes it; None if it is none."""
    found = _INTERVAL.fullmatch(text.strip().lower())
    unit = None if found is None else _UNITS.get(found[2])
    return None if found is None or unit is None else f"{found[1]} {unit}"


def _unused(
    sources: tuple[Source, ...], steps: tuple[Step, ...], sinks: tuple[Sink, ...]
) -> tuple[KeyPath, ...]:
    """Return the sources and steps that no sink needs, as far as the text of statements tells."""
    names = [source.name for source in sources] + [step.name for step in steps]
    needed = {sink.source for sink in sinks}
    for step in reversed(steps):
        if step.name not in needed:
            continue
        before = names[: names.index(step.name)]
        sql = step.sql
        needed.update(
            name for name in before if sql is None or re.search(rf"(?i)\b{name}\b", sql) is not None
        )
    return (
        *(("sources", each.name) for each in sources if each.name not in needed),
        *(("steps", each.name) for each in steps if each.name not in needed),
    )


def _unknown(given: str, known: Collection[str], what: str) -> str:
    near = difflib.get_close_matches(given, known, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
    return f"there is no {what} {given}{hint}"
