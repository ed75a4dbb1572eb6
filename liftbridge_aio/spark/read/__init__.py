"""Reading streams with Spark.

- `batch_planning`: Plan a batch query: resolve its options into ranges of offsets.
- `committed_columns`: Show what is committed of a range of offsets, column by column.
- `driver`: Call servers from the driver: with retries, and with errors for users of Spark.
- `group_positions`: Keep the position of a query as that of a consumer group, for those who watch
  groups.
- `log_ends`: Fetch the bounds of logs: partitions, oldest and newest offsets, offsets by time.
- `pushdown`: Push filters of a batch query down: those on topic, partition, offset and timestamp.
- `range_reader`: Read a range of offsets into Arrow record batches, in a task of Spark.
- `readers`: The readers that Spark calls for a batch query and for a streaming query.
- `record_batches`: Convert messages into Arrow record batches, column by column.
- `resolved_offsets`: Resolve the start and end of a query into offsets.
- `schema`: The columns of a read, as types of Spark and of Arrow.
- `stream_planning`: Plan the micro-batches of a streaming query: the start, end and ranges of each.
"""
