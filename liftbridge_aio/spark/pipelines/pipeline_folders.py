"""The folders of a pipeline: its checkpoint and its Parquet files, which must fit each other.

Spark numbers the batches of a query in its checkpoint, and notes in the folder of the files,
in `_spark_metadata`, which batches these have. It skips a batch that is noted there, whatever its
rows are. So a checkpoint that is behind the files, or that of another query, loses rows without a
word, and one that is ahead of them fails later, when Spark merges the notes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from liftbridge_aio._runtime.file_lock import FileLock, FileLocked
from liftbridge_aio.errors import UsageError
from liftbridge_aio.spark.core.pipeline_file import PipelineFile, Sink

from .checkpoints import NO_BATCH, newest_batch, other_query

_LOCK: Final = "_lock"
_NOTES: Final = "_spark_metadata"


class PipelineRunning(UsageError):
    """Another command runs the pipeline, or writes to one of its folders."""


@contextmanager
def pipeline_lock(pipeline: PipelineFile, folder: Path) -> Iterator[None]:
    """Keep other commands from using the folders of a pipeline within the context.

    The system releases the locks when the process ends, however that happens.

    Args:
        pipeline: what the file describes.
        folder: where the file is; paths in it begin there.

    Raises:
        PipelineFileError: see `check_folders`.
        PipelineRunning: another command holds a lock.
        OSError: a folder cannot be created.
    """
    check_folders(pipeline, folder)
    targets = (sink.target for sink in pipeline.sinks if sink.kind == "parquet")
    with ExitStack() as stack:
        for name in (pipeline.checkpoint, *targets):
            place = folder / name
            place.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(FileLock(place / _LOCK))
            except FileLocked:
                text = f"another command runs {pipeline.name}, or a pipeline that uses {place}"
                error = PipelineRunning(text)
                error.hint = "wait for its end, or end it"
                raise error from None
        yield


def check_folders(pipeline: PipelineFile, folder: Path) -> None:
    """Check that each folder of Parquet files has the batches that the checkpoint says.

    Args:
        pipeline: what the file describes.
        folder: where the file is; paths in it begin there.

    Raises:
        PipelineFileError: Spark would skip batches, or hide files, or fail later.
    """
    for sink in pipeline.sinks:
        if sink.kind == "parquet":
            _check_files(pipeline, sink, folder)


def _check_files(pipeline: PipelineFile, sink: Sink, folder: Path) -> None:
    checkpoint, files = folder / pipeline.checkpoint / sink.name, folder / sink.target
    planned, committed = newest_batch(checkpoint / "offsets"), newest_batch(checkpoint / "commits")
    written = newest_batch(files / _NOTES)
    if written != NO_BATCH and (other := other_query(checkpoint, files)):
        problem = f"{other}: Spark would skip batches that the files have, and lose their rows"
        hint = (
            "name the folder that this query wrote, or the checkpoint that wrote this folder, or"
            " begin anew with a new checkpoint and a new folder"
        )
    elif written > planned:
        problem = (
            f"{files} has batch {written} of another checkpoint, and {checkpoint} is"
            f" {_at(planned)}: Spark would skip its batches up to {written}, and lose their rows"
        )
        hint = "restore the checkpoint, or begin anew with a new checkpoint and a new folder"
    elif written < committed:
        problem = (
            f"{checkpoint} is {_at(committed)}, and {files} is {_at(written)}: Spark would fail"
            " when it needs the missing batches"
        )
        hint = "restore the folder, or begin anew with a new checkpoint and a new folder"
    elif planned == NO_BATCH and _has_files(files):
        problem = (
            f"{files} has files that this pipeline did not write: Spark would no longer show them"
            " to those who read the folder"
        )
        hint = "name a folder that is empty or new"
    else:
        return
    error = pipeline.error(("sinks", sink.name, "parquet"), problem)
    error.hint = f"{hint}; readers can read several folders at once"
    raise error


def _at(batch: int) -> str:
    return "new" if batch == NO_BATCH else f"at batch {batch}"


def _has_files(folder: Path) -> bool:
    # Readers ignore other names, such as that of the lock.
    return folder.is_dir() and any(
        not each.name.startswith(("_", ".")) for each in folder.iterdir()
    )
