"""Writing to streams with Spark.

- `arrow_rows`: Convert the rows of an Arrow batch into the parts of messages, column by column.
- `batch_publisher`: Publish the rows of a task, with a bounded number in flight, and wait for
  every ack.
- `commit`: Commit a batch, from the thread in which Spark asks for it, in any process of the
  driver.
- `decisions`: The decisions of a query: one for each of its batches, whichever driver makes it.
- `sink`: The sink `liftbridge`: the writers that Spark calls, for batch writes and for streaming
  queries.
- `task_writer`: Write the rows of a task, from the thread in which Spark runs it.
"""
