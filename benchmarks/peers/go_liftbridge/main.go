// Command go_liftbridge publishes to and consumes from a Liftbridge server through go-liftbridge
// and measures that.
//
//	go_liftbridge consume|publish|latency --servers HOST:PORT --stream NAME …
package main

import (
	"context"

	"liftbridge_aio/benchmarks/peers/go_liftbridge/measuring"

	lift "github.com/liftbridge-io/go-liftbridge/v2"
)

const module = "github.com/liftbridge-io/go-liftbridge/v2"

var policies = map[measuring.Policy]lift.MessageOption{
	measuring.AckLeader: lift.AckPolicyLeader(),
	measuring.AckAll:    lift.AckPolicyAll(),
	measuring.AckNone:   lift.AckPolicyNone(),
}

type client struct {
	lift.Client
	stream string
}

func main() {
	measuring.Main("go-liftbridge", module, func(servers []string, stream string) (measuring.Client, error) {
		// The context of the connection is also that of its publishing: it must have no deadline.
		connected, err := lift.Connect(servers)
		return client{connected, stream}, err
	})
}

// options are made once: they are the same for every message to a partition.
func options(partitions int, policy measuring.Policy) [][]lift.MessageOption {
	each := make([][]lift.MessageOption, partitions)
	for partition := range each {
		each[partition] = []lift.MessageOption{policies[policy], lift.ToPartition(int32(partition))}
	}
	return each
}

func (c client) Publisher(partitions int, policy measuring.Policy) measuring.Publish {
	ctx, options := context.Background(), options(partitions, policy)
	return func(partition int, value []byte) error {
		_, err := c.Publish(ctx, c.stream, value, options[partition]...)
		return err
	}
}

func (c client) AsyncPublisher(partitions int, policy measuring.Policy) measuring.PublishAsync {
	ctx, options := context.Background(), options(partitions, policy)
	return func(partition int, value []byte, acked measuring.Acked) error {
		return c.PublishAsync(ctx, c.stream, value, handler(acked), options[partition]...)
	}
}

func handler(acked measuring.Acked) lift.AckHandler {
	if acked == nil {
		return nil
	}
	return func(_ *lift.Ack, err error) { acked(err) }
}

func (c client) Read(ctx context.Context, partition int, start measuring.Start, received measuring.Received) error {
	position := lift.StartAtEarliestReceived()
	if start == measuring.NewOnly {
		position = lift.StartAtNewOnly()
	}
	return c.Subscribe(ctx, c.stream, func(message *lift.Message, err error) {
		if err != nil {
			received(0, nil, err)
			return
		}
		received(message.Offset(), message.Value(), nil)
	}, position, lift.Partition(int32(partition)))
}
