"""Pure helpers that every part of the package may use.

- `absence`: Decides when a stream counts as gone: once servers have denied it for long enough.
- `addresses`: Addresses as people write them: `host`, `host:port`, `[ipv6]:port`.
- `arguments`: Checks of single arguments, shared by all calls.
- `bounded_gather`: Awaits many calls with bounded concurrency, and lets all of them finish.
- `early_interrupt`: Ctrl-C while the command line is being imported ends the process at once,
  with exit code 130.
- `event_loop`: The running event loop, which must be asyncio's.
- `file_lock`: Exclusive locks on files, which the operating system releases when the process
  ends.
- `foreign_cancellation`: A `CancelledError` that nobody asked this task for is a failure of the
  callback that raised it.
- `foreign_text`: Text from elsewhere, such as that of errors, as UTF-8 and as JSON.
- `log_position`: Which cursor has the position of a reader in the log that a stream has now.
- `message_check`: Refuses invalid messages before anything is sent.
- `names`: Checks of names that would crash a server.
- `status`: Turns status codes and texts of failed calls into errors and decisions about retries.
"""
