package measuring

import (
	"context"
	"encoding/binary"
	"time"
)

// latency publishes at a fixed rate, however long answers take, while it reads the same partition.
// A message's time counts from when it was due, so that waiting to be sent is not left out.
func latency(client Client, s settings, outcome result) error {
	if _, err := publishWindow(client, settings{partitions: 1, window: 100, policy: AckLeader},
		make([]byte, s.messageSize), warmUp); err != nil {
		return err
	}
	messages := int(float64(s.rate) * s.duration.Seconds())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clock := time.Now()

	delivered := make([]time.Duration, 0, messages)
	deliveries := make(chan error, 2)
	err := client.Read(ctx, 0, NewOnly, func(_ int64, value []byte, err error) {
		if err != nil {
			deliveries <- err
			return
		}
		due := time.Duration(binary.LittleEndian.Uint64(value))
		delivered = append(delivered, time.Since(clock)-due)
		if len(delivered) == messages {
			deliveries <- nil
		}
	})
	if err != nil {
		return err
	}

	acked := make([]time.Duration, 0, messages)
	acks := make(chan struct{}, 1)
	failed, answers := 0, 0
	send := client.AsyncPublisher(1, AckLeader)
	watch := startWatch()
	err = atRate(s.rate, messages, func(at time.Time) error {
		due := at.Sub(clock)
		value := make([]byte, s.messageSize)
		binary.LittleEndian.PutUint64(value, uint64(due))
		return send(0, value, func(err error) {
			if err != nil {
				failed++
			}
			acked = append(acked, time.Since(clock)-due)
			if answers++; answers == messages {
				acks <- struct{}{}
			}
		})
	})
	if err != nil {
		return err
	}
	<-acks
	if err := <-deliveries; err != nil {
		return err
	}
	watch.stop(outcome, messages)
	outcome["errors"] = failed
	outcome.latencies("latency_", delivered)
	outcome.latencies("ack_latency_", acked)
	outcome.latencies("delivery_latency_", delivered)
	return nil
}
