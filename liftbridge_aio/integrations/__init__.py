"""Web services on Liftbridge: FastAPI, Starlette and aiohttp, each in the module of its name.

Each needs the extra of its name and is imported by nothing else of the package.

- `aiohttp`: aiohttp applications on Liftbridge: client lifecycle, health handler, server-sent
  events.
- `event_stream`: A response of server-sent events: from the subscription to its last message.
- `fastapi`: FastAPI applications on Liftbridge: those of Starlette, and a dependency for the
  client.
- `health`: The health check of a service, as its health route reports it.
- `server_sent_events`: The format of server-sent events, and of the ids that browsers send back.
- `service`: The client of a web service: connected when the service starts, drained when it ends.
- `starlette`: Starlette applications on Liftbridge: client lifecycle, health route, server-sent
  events.
"""
