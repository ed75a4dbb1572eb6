"""Pipelines that the command line runs.

- `archive`: Copy streams to Parquet files, continuously or up to now, and resume where it stopped.
- `checkpoints`: Whether a checkpoint of Spark is that of the query that wrote a folder of files.
- `compaction`: Compact the closed dates of an archive, and read an archive while that happens.
- `file_pipeline`: Run the pipeline that a file describes: views for sources and steps, a query for
  each sink.
- `json_columns`: How pipelines write columns as JSON: nothing is cut off, and nothing is left out.
- `json_file`: Files of JSON that are replaced atomically: a crash leaves the old content or the new
  one.
- `pipeline_folders`: The folders of a pipeline: its checkpoint and its Parquet files, which must
  fit each other.
- `replay`: Publish an archive, or another table with its columns, into streams; resume where it
  stopped.
- `source_rows`: The rows of a source of a pipeline, and the count of acks that it skips.
"""
