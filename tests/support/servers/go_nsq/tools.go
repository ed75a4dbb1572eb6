//go:build tools

// Package go_nsq pins the daemons of NSQ that the tests talk to.
package go_nsq

import (
	_ "github.com/nsqio/nsq/apps/nsqd"
	_ "github.com/nsqio/nsq/apps/nsqlookupd"
)
