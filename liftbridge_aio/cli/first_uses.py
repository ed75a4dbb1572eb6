"""Has our dependencies import now what they would import only when they are first used."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from liftbridge_aio.wire import proto

anyio.run(anyio.lowlevel.checkpoint)  # anyio: what belongs to asyncio
bytes(proto.FetchMetadataRequest())  # betterproto2: pydantic, if it is installed
