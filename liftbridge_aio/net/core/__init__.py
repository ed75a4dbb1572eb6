"""Pure parts of the transport: no event loop, clock, chance or I/O.

- `data_lane`: The data lane: extracts DATA frames of registered streams from the bytes of a
  connection.
- `lane_stream`: One stream of the data lane: cuts its bytes into gRPC messages, keeps its flow
  control.
- `metadata_merge`: Merges fetched metadata into the snapshot of the client.
- `not_liftbridge`: Recognises answers of servers other than Liftbridge: HTTP, or another gRPC
  service.
"""
