"""Pure parts of the Spark source and sink: no event loop, clock, randomness or I/O.

- `admission`: The end of a micro-batch in each partition.
- `connection_options`: Options for the servers, and for the client that connects to them.
- `data_loss`: Find messages that a query has yet to read and that the log no longer has.
- `decision`: The decision of a batch: which attempts of its tasks are committed.
- `kafka_options`: Options of Spark's Kafka connector, and the options to use instead.
- `offsets`: Positions in the partitions of streams, and ranges between them.
- `one_shot_producer`: The producer of one attempt of a task: numbers its rows, and knows what may
  be committed.
- `option_table`: Names of options, and parsers for their values.
- `options`: Options of a read and of a write, parsed from Spark's text and checked together.
- `pipeline_file`: Parse files that describe pipelines, and find the line of what is wrong in them.
- `positions`: Start and end of a read as given by options: earliest, latest, offsets or times.
- `read_failures`: Convert errors of the client into those of a query that reads.
- `row_columns`: Find the columns of a DataFrame that messages are written from.
- `row_digest`: A digest of rows that does not depend on their order, or on how tasks share them.
- `row_placement`: Choose the stream and partition of each row.
- `selection`: The partitions that a query reads: streams by name or pattern, or single partitions.
- `toml_lines`: Find the lines of tables and keys in TOML, which the standard parser does not tell.
- `write_id`: The write id: a header that identifies a row, so that its repeats are known.
"""
