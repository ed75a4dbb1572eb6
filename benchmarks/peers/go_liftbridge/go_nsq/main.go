// Command go_nsq publishes to and consumes from an nsqd through go-nsq and measures that.
//
//	go_nsq consume|publish --servers HOST:PORT --stream TOPIC …
package main

import (
	"context"

	"liftbridge_aio/benchmarks/peers/go_liftbridge/measuring"

	nsq "github.com/nsqio/go-nsq"
)

const module = "github.com/nsqio/go-nsq"

// The same for all clients.
const channel = "bench"
const maxInFlight = 1000

type client struct {
	address, topic string
	producer       *nsq.Producer
}

func main() {
	measuring.Main("go-nsq", module, func(servers []string, topic string) (measuring.Client, error) {
		producer, err := nsq.NewProducer(servers[0], nsq.NewConfig())
		if err != nil {
			return nil, err
		}
		producer.SetLoggerLevel(nsq.LogLevelError)
		return client{servers[0], topic, producer}, nil
	})
}

func (c client) Publisher(int, measuring.Policy) measuring.Publish {
	return func(_ int, value []byte) error { return c.producer.Publish(c.topic, value) }
}

func (c client) AsyncPublisher(int, measuring.Policy) measuring.PublishAsync {
	done := make(chan *nsq.ProducerTransaction, maxInFlight)
	go func() {
		for transaction := range done {
			transaction.Args[0].(measuring.Acked)(transaction.Error)
		}
	}()
	return func(_ int, value []byte, acked measuring.Acked) error {
		return c.producer.PublishAsync(c.topic, value, done, acked)
	}
}

func (c client) Read(_ context.Context, _ int, _ measuring.Start, received measuring.Received) error {
	config := nsq.NewConfig()
	config.MaxInFlight = maxInFlight
	consumer, err := nsq.NewConsumer(c.topic, channel, config)
	if err != nil {
		return err
	}
	consumer.SetLoggerLevel(nsq.LogLevelError)
	offset := int64(0)
	consumer.AddHandler(nsq.HandlerFunc(func(message *nsq.Message) error {
		received(offset, message.Body, nil)
		offset++
		return nil
	}))
	return consumer.ConnectToNSQD(c.address)
}

func (c client) Close() error {
	c.producer.Stop()
	return nil
}
