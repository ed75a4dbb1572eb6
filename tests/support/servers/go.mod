module liftbridge_aio/tests/servers

go 1.17

require github.com/liftbridge-io/liftbridge v1.9.0
require github.com/nats-io/nats-server/v2 v2.7.4
