// Command plain_grpc speaks the API of Liftbridge with grpc-go and no client around it: what is the
// most that the server gives to a program in Go.
package main

import (
	"context"
	"strconv"

	"liftbridge_aio/benchmarks/peers/go_liftbridge/measuring"

	api "github.com/liftbridge-io/liftbridge-api/v2/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const module = "google.golang.org/grpc"

// Unchecked is the expected offset of a message that may come to stand anywhere.
const unchecked = -1

var policies = map[measuring.Policy]api.AckPolicy{
	measuring.AckLeader: api.AckPolicy_LEADER,
	measuring.AckAll:    api.AckPolicy_ALL,
	measuring.AckNone:   api.AckPolicy_NONE,
}

var starts = map[measuring.Start]api.StartPosition{
	measuring.Earliest: api.StartPosition_EARLIEST,
	measuring.NewOnly:  api.StartPosition_NEW_ONLY,
}

// room for the handlers of messages on their way, which no benchmark exceeds.
const room = 1 << 20

type client struct {
	connection *grpc.ClientConn
	api        api.APIClient
	session    api.API_PublishAsyncClient
	stream     string
	unanswered chan measuring.Acked
}

func main() {
	measuring.Main("grpc-go", module, connect)
}

func connect(servers []string, stream string) (measuring.Client, error) {
	credentials := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection, err := grpc.NewClient(servers[0], credentials)
	if err != nil {
		return nil, err
	}
	c := &client{connection: connection, api: api.NewAPIClient(connection), stream: stream}
	// The connection is made by its first call.
	if c.session, err = c.api.PublishAsync(context.Background()); err != nil {
		return nil, err
	}
	c.unanswered = make(chan measuring.Acked, room)
	go c.receive()
	return c, nil
}

// receive takes answers for those to the oldest messages, as they are: each partition answers in
// order, and only their number counts where there are several.
func (c *client) receive() {
	for {
		response, err := c.session.Recv()
		if err == nil && response.AsyncError != nil {
			err = refusal{response.AsyncError}
		}
		(<-c.unanswered)(err)
		if response == nil {
			for acked := range c.unanswered {
				acked(err)
			}
			return
		}
	}
}

type refusal struct{ *api.PublishAsyncError }

func (r refusal) Error() string { return r.Message }

func (c *client) AsyncPublisher(_ int, policy measuring.Policy) measuring.PublishAsync {
	number := 0
	return func(partition int, value []byte, acked measuring.Acked) error {
		if acked != nil {
			c.unanswered <- acked
		}
		number++
		return c.session.Send(&api.PublishRequest{
			Stream:         c.stream,
			Partition:      int32(partition),
			Value:          value,
			CorrelationId:  strconv.Itoa(number),
			AckPolicy:      policies[policy],
			ExpectedOffset: unchecked,
		})
	}
}

func (c *client) Publisher(partitions int, policy measuring.Policy) measuring.Publish {
	answers := make(chan error, 1)
	publish := c.AsyncPublisher(partitions, policy)
	acked := func(err error) { answers <- err }
	return func(partition int, value []byte) error {
		if err := publish(partition, value, acked); err != nil {
			return err
		}
		return <-answers
	}
}

func (c *client) Read(ctx context.Context, partition int, start measuring.Start, received measuring.Received) error {
	subscription, err := c.api.Subscribe(ctx, &api.SubscribeRequest{
		Stream:        c.stream,
		Partition:     int32(partition),
		StartPosition: starts[start],
	})
	if err != nil {
		return err
	}
	// The first message is empty and says that the subscription stands.
	if _, err := subscription.Recv(); err != nil {
		return err
	}
	go func() {
		for {
			message, err := subscription.Recv()
			if err != nil {
				received(0, nil, err)
				return
			}
			received(message.Offset, message.Value, nil)
		}
	}()
	return nil
}

func (c *client) Close() error {
	return c.connection.Close()
}
