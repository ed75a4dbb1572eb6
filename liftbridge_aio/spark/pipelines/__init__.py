"""Pipelines that the command line runs.

- `archive`: Copy streams to Parquet files, continuously or up to now, and resume where it stopped.
- `totals_pipeline`: A pipeline from stream to stream: sales in, totals for each shop and time
  window out.
"""
