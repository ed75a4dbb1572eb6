"""The fault proxy: a connection to a server that tests can break.

- `connection`: One connection through a fault proxy: two ends, and a pipe in each direction.
- `damage`: Damages a stream of bytes: flips bits, ends it in the middle of a frame.
- `delay_line`: The bytes in transit through a connection: their delay and their limit.
- `fault_plan`: Sequences of faults made by chance, to be done again by their seed.
- `fault_proxy`: A TCP proxy that breaks, slows down and damages connections on demand.
- `faults`: The words of the fault proxy: directions, kinds of faults, records of them.
- `forwarding_proxy`: A TCP proxy: listens, connects to the target for each client, and owns the
  connections.
- `frames`: Where the frames of HTTP/2 are in a stream of bytes (RFC 9113, sections 3.4 and 4.1).
"""
