"""What runs tasks, connections and signals for every part of the package.

- `bounded_gather`: Awaits many calls with bounded concurrency, and lets all of them finish.
- `early_interrupt`: Ctrl-C while the command line is being imported ends the process at once, with
  exit code 130.
- `event_loop`: The running event loop, which must be asyncio's.
- `file_lock`: Exclusive locks on files, which the operating system releases when the process ends.
- `nats_library`: The parts of nats-py used by this package, or an ImportError with the install
  command.
- `nats_link`: The connection to NATS that a publisher uses: its own, or one that it was given.
- `nats_transport`: Transport of nats-py: recognises foreign servers, and writes nothing before the
  TLS asked for.
- `stop_signal`: Handles SIGTERM and Ctrl-C as a request to stop, or notices them.
- `supervisor`: One task that owns the task group in which all tasks of a client run.
- `window`: The limit of messages in flight; waiting for room in it is the back-pressure.
"""
