"""The parts of nats-py used by this package, or an ImportError with the install command."""

try:
    from nats import errors
    from nats.aio.client import Client as NatsConnection
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.aio.transport import TcpTransport
except ImportError as error:
    raise ImportError("liftbridge_aio.nats needs nats-py: pip install nats-py") from error

__all__ = ["Msg", "NatsConnection", "Subscription", "TcpTransport", "errors"]
