//go:build tools

// Package stan pins the NATS Streaming server that the tests build and talk to.
package stan

import _ "github.com/nats-io/nats-streaming-server"
