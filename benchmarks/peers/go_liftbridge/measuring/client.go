// Package measuring times what a client does at a Liftbridge server; which client is open.
package measuring

import "context"

// Policy says who must have a message before the server answers.
type Policy string

const (
	AckLeader Policy = "leader"
	AckAll    Policy = "all"
	AckNone   Policy = "none"
)

// Start says where reading begins.
type Start string

const (
	Earliest Start = "earliest"
	NewOnly  Start = "new"
)

// Publish returns when the server has answered.
type Publish func(partition int, value []byte) error

// Acked is told the server's answer to one message.
type Acked func(err error)

// PublishAsync returns when the message is on its way. With AckNone, acked is nil.
type PublishAsync func(partition int, value []byte, acked Acked) error

// Received is called for each message of a partition in order. An error is the end.
type Received func(offset int64, value []byte, err error)

// Client is connected and is asked for one thing at a time, from one goroutine.
type Client interface {
	Publisher(partitions int, policy Policy) Publish
	AsyncPublisher(partitions int, policy Policy) PublishAsync
	// Read returns when the server has accepted; each partition has a goroutine of its own.
	Read(ctx context.Context, partition int, start Start, received Received) error
	Close() error
}
