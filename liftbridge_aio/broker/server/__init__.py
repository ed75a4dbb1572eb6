"""The network service of a broker, and its background tasks.

- `activity_publisher`: Publishes the activity stream: an event in `__activity` for each operation.
- `broker_context`: The context of a broker: its node, the controller, its clock and inboxes.
- `call`: One call on the server side: messages in and out, with faults applied.
- `clock`: The clock by which a broker stamps and ages messages, and which tests can skew.
- `connections`: The server side of HTTP/2 connections, hardened against hostile clients.
- `framing`: gRPC messages in and out of grpclib's streams, with limits.
- `group_procedures`: The four procedures of consumer groups, as one broker answers them.
- `lifecycle`: Starting, stopping and restarting, as a broker and a cluster of brokers share them.
- `local_cluster`: The nodes of one cluster in this process, alone or several, and what they share.
- `maintenance`: The background task of a broker: cleaning, pausing, expelling silent members.
- `procedures`: The table from paths to the coroutines that answer them.
- `publish_session`: One PublishAsync call: messages in, acks out.
- `replicator`: Replication between the brokers of a cluster: fetching, in-sync replicas, failover.
- `server`: A broker that listens on a port, serves calls and runs its background tasks.
- `service`: The procedures of Liftbridge, as one broker answers them.
- `settings`: The settings that the brokers of one cluster share, and their checks.
- `subscriber`: One Subscribe call: a partition's messages, from its start position to its stop
  position.
- `tls`: The TLS option of a broker: its certificate, and whether clients need one.
- `tls_connection`: The server side of a TLS connection, between a socket and a protocol.
"""
