// Command go_stan publishes to and consumes from NATS Streaming through stan.go and measures that.
//
//	go_stan consume|publish --servers HOST:PORT --stream CHANNEL …
package main

import (
	"context"
	"fmt"
	"os"

	"liftbridge_aio/benchmarks/peers/go_liftbridge/measuring"

	"github.com/nats-io/stan.go"
)

const module = "github.com/nats-io/stan.go"

// The same for all clients.
const cluster = "test-cluster"
const maxInFlight = 1000

type client struct {
	stan.Conn
	channel string
}

func main() {
	measuring.Main("stan.go", module, func(servers []string, channel string) (measuring.Client, error) {
		id := fmt.Sprintf("bench-%d", os.Getpid())
		connected, err := stan.Connect(cluster, id, stan.NatsURL("nats://"+servers[0]))
		return client{connected, channel}, err
	})
}

func (c client) Publisher(int, measuring.Policy) measuring.Publish {
	return func(_ int, value []byte) error { return c.Publish(c.channel, value) }
}

func (c client) AsyncPublisher(int, measuring.Policy) measuring.PublishAsync {
	return func(_ int, value []byte, acked measuring.Acked) error {
		_, err := c.PublishAsync(c.channel, value, func(_ string, err error) { acked(err) })
		return err
	}
}

func (c client) Read(_ context.Context, _ int, _ measuring.Start, received measuring.Received) error {
	_, err := c.Subscribe(c.channel, func(message *stan.Msg) {
		received(int64(message.Sequence), message.Data, message.Ack())
	}, stan.DeliverAllAvailable(), stan.SetManualAckMode(), stan.MaxInflight(maxInFlight))
	return err
}
