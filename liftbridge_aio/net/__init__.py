"""The transport: connections, calls, metadata. The only client package that imports grpclib.

grpclib's hazards (leaked cancellation counts, calls that wait for ever on exit, silent
reconnects) are contained here: other packages get a `CallFailure`, a plain value, or bytes.

- `broker_connection`: One HTTP/2 connection to one broker.
- `call`: One gRPC call on one connection: the only code that touches grpclib's client streams.
- `connection_pool`: All connections of a client: one per address and purpose, made on demand,
  health-checked.
- `fast_call`: The fast path of streaming calls: messages come from the data lane, by callback.
- `grpclib_shape`: Checks that grpclib and h2 have the internals that the data lane depends on.
- `leader_call`: Unary calls to the leader of a partition, which is followed where it moves.
- `metadata`: The client's metadata cache: refreshed when it proves stale, one fetch at a time,
  merged.
- `network`: The transport of one client as one value: connections, calls, metadata, tasks.
- `plain_call`: The plain path of streaming calls: a task takes message after message from
  grpclib.
- `protocol`: Receives the bytes of a connection: DATA of lane streams is taken out, h2 gets the
  rest.
- `reporter`: Calls the user's hooks with events; exceptions of hooks are logged and have no
  effect.
- `retry_state`: The state of one call with retries: the time left, the failures so far, the final
  error.
- `router`: Unary calls with retries, to any broker or to a named one.
- `stream_lookup`: Waiting until servers know streams, or have denied them for long enough to
  count as gone.
- `tls_context`: TLS for connections: the client's SSLContext, and a probe for servers that
  require TLS.
- `core/`: Pure parts of the transport: no event loop, clock, chance or I/O.
"""
