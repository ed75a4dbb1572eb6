"""Writing to streams with Spark.

- `arrow_rows`: Convert the rows of an Arrow batch into the parts of messages, column by column.
- `batch_publisher`: Publish the rows of a task, with a bounded number in flight, and wait for
  every ack.
- `sink`: The sink `liftbridge`: the writers that Spark calls, for batch writes and for streaming
  queries.
- `task_writer`: Write the rows of a task, from the thread in which Spark runs it.
"""
