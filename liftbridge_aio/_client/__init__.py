"""The client, assembled from the packages below.

- `activity`: Reads the activity stream of the servers as typed events, without repeats.
- `administration`: The administrative calls of the client: streams, metadata and
  cursors.
- `base`: The base of the client's mixins: its parts, and default timeouts.
- `client`: The client: creates its parts, and has its public calls.
- `groups`: The call of the client that makes it a member of a consumer group.
- `parts`: The parts of a connected client; imported on connecting, because this imports the
  network.
- `publishing`: The publishing calls of the client.
- `queues`: The call of the client that makes it a member of a queue.
- `reading`: The reading calls of the client.
- `server_url`: Parses servers as users write them: addresses, or one URL with TLS parameters.
- `transactions`: The transactions of the client.
- `typed_stream`: Publishes and reads a stream as values of one type.
- `values`: The calls of the client that publish and read typed values, and read events.
"""
