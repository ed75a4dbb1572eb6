"""Pure helpers that every part of the package may use.

- `absence`: Decides when a stream counts as gone: once servers have denied it for long enough.
- `addresses`: Addresses as people write them: `host`, `host:port`, `[ipv6]:port`.
- `arguments`: Checks of single arguments, shared by all calls.
- `foreign_cancellation`: A `CancelledError` that nobody asked this task for is a failure of the
  callback that raised it.
- `foreign_text`: Text from elsewhere, such as that of errors, as UTF-8 and as JSON.
- `log_position`: Which cursor has the position of a reader in the log that a stream has now.
- `message_check`: Refuses invalid messages before anything is sent.
- `message_lane`: Takes messages of chosen subjects out of the bytes from NATS, before nats-py reads
  them.
- `names`: Checks of names that would crash a server.
- `public_face`: Shows public classes and calls as users know them: without private bases, with all
  arguments.
- `ready_flow`: Divides a limit of messages in flight among connections, and backs off when handlers
  fail.
- `status`: Turns status codes and texts of failed calls into errors and decisions about retries.
- `tls_failures`: Turns errors of OpenSSL into failures that say what is wrong with a TLS
  connection.
"""
