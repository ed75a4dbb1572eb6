"""`liftbridge-aio broker`: run the embedded broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from liftbridge_aio._core.addresses import format_address

from .arguments import BadArgument
from .connection import AsJson, Port
from .output import say, write_json, write_line
from .running import BROKER, in_event_loop, stop_signals


@in_event_loop(*BROKER)
async def broker(
    *,
    host: Annotated[
        str, Parameter(help="Address to listen on and to advertise to clients.")
    ] = "127.0.0.1",
    port: Port = 9292,
    data_dir: Annotated[
        Path | None,
        Parameter(help="Folder for all data, which is kept. Default: memory."),
    ] = None,
    activity: Annotated[
        bool, Parameter(help="Publish events to the activity stream, __activity.")
    ] = False,
    tls_cert: Annotated[
        Path | None,
        Parameter(help="Use TLS: file with the broker's certificate."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        Parameter(help="File with its private key. Default: the same file."),
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        Parameter(help="Require certificates of clients, signed by the authorities in this file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the embedded broker until Ctrl-C or SIGTERM.

    Its address is written to stdout when it accepts connections.

    For example:

        liftbridge-aio broker
        liftbridge-aio broker --port 0 --json
        liftbridge-aio broker --data-dir ./log --activity
        liftbridge-aio broker --tls-cert server.pem --tls-key server-key.pem --tls-client-ca ca.pem

    The password of an encrypted key is read from LIFTBRIDGE_TLS_KEY_PASSWORD.
    """
    if tls_cert is None and (tls_key is not None or tls_client_ca is not None):
        raise BadArgument("--tls-key and --tls-client-ca need --tls-cert")
    with stop_signals() as stop:
        # help must not wait for it
        from liftbridge_aio.broker import (  # noqa: PLC0415
            BrokerTLS,
            DataDirectoryError,
            EmbeddedBroker,
        )

        tls = None
        try:
            if tls_cert is not None:
                password = os.environ.get("LIFTBRIDGE_TLS_KEY_PASSWORD")
                tls = BrokerTLS(
                    cert=tls_cert, key=tls_key, key_password=password, client_ca=tls_client_ca
                )
            server = EmbeddedBroker(host, port, data_dir=data_dir, activity=activity, tls=tls)
        except ValueError as error:
            raise BadArgument(str(error)) from None
        try:
            await server.start()
        except DataDirectoryError as error:
            raise BadArgument(str(error)) from None
        except OSError as error:
            raise OSError(
                f"the broker cannot start at {format_address(host, port)}: {error}"
            ) from None
        try:
            if as_json:
                write_json({"address": server.address})
            else:
                write_line(server.address)
            place = "memory" if data_dir is None else str(data_dir)
            say(f"The embedded broker is ready. It stores all data in {place}; Ctrl-C stops it.")
            await stop.wait()
        finally:
            await server.stop()
