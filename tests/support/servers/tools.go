//go:build tools

// Package servers pins the servers that the tests build and talk to.
package servers

import (
	_ "github.com/liftbridge-io/liftbridge"
	_ "github.com/nats-io/nats-server/v2"
)
