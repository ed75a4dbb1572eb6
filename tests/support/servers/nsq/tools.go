//go:build tools

// Package nsq pins the daemons of NSQ that the tests talk to.
package nsq

import (
	_ "github.com/nsqio/nsq/apps/nsqd"
	_ "github.com/nsqio/nsq/apps/nsqlookupd"
)
