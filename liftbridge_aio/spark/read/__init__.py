"""Reading streams with Spark.

- `batch_planning`: Plan a batch query: resolve its options into ranges of offsets.
- `driver`: Call servers from the driver: with retries, and with errors for users of Spark.
- `log_ends`: Fetch what servers have to read: partitions, where their logs begin and end, offsets
  by time.
- `pushdown`: Push filters of a batch query down: those on topic, partition, offset and timestamp.
- `range_reader`: Read a range of offsets into Arrow record batches, in a task of Spark.
- `readers`: The readers that Spark calls for a batch query and for a streaming query.
- `record_batches`: Convert messages into Arrow record batches, column by column.
- `resolved_offsets`: Resolve where a query starts and ends into offsets.
- `schema`: The columns of a read, as types of Spark and of Arrow.
- `stream_planning`: Plan the micro-batches of a streaming query: where each starts and ends, and
  its ranges.
"""
