"""Web services on Liftbridge: FastAPI, Starlette and aiohttp, each in the module of its name.

Each needs the extra of its name and is imported by nothing else of the package.

- `aiohttp`: aiohttp applications on Liftbridge: the client's life, a health handler, server-sent
  events.
- `event_stream`: One response that consists of server-sent events: from the subscription to its
  last message.
- `fastapi`: FastAPI applications on Liftbridge: as `liftbridge_aio.integrations.starlette`, and a
  dependency.
- `health`: The health check of a service, as its health route reports it.
- `server_sent_events`: Messages as server-sent events: what goes over the line, and what the
  browser sends back.
- `service`: The client of a web service: connected when the service starts, drained when it ends.
- `starlette`: Starlette applications on Liftbridge: the client's life, a health route,
  server-sent events.
"""
