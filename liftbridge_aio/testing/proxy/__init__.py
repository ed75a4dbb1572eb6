"""A TCP proxy that injects faults between a client and a server.

- `connection`: One connection through a fault proxy: two ends, and a pipe in each direction.
- `damage`: Damages a stream of bytes: flips bits, truncates it within a frame.
- `delay_line`: The bytes in transit through a connection, with delay and rate limit.
- `fault_plan`: Random sequences of faults that can be repeated from their seed.
- `fault_proxy`: A TCP proxy that breaks, slows down and damages connections on demand.
- `faults`: Directions, kinds and records of faults.
- `forwarding_proxy`: A TCP proxy: listens, connects to the target for each client, and owns the
  connections.
- `frames`: Finds the HTTP/2 frames in a stream of bytes (RFC 9113, sections 3.4 and 4.1).
"""
