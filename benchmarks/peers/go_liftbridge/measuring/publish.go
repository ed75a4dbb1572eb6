package measuring

import (
	"bytes"
	"sync/atomic"
	"time"
)

const warmUp = 2000

// publish sends messages to all partitions in turn and waits for every answer.
func publish(client Client, s settings, outcome result) error {
	value := bytes.Repeat([]byte{'x'}, s.messageSize)
	if s.window == 1 && s.policy != AckNone {
		return publishOneByOne(client, s, value, outcome)
	}
	if _, err := publishWindow(client, s, value, warmUp); err != nil {
		return err
	}
	watch := startWatch()
	failed, err := publishWindow(client, s, value, s.messages)
	watch.stop(outcome, s.messages)
	outcome["errors"] = failed
	return err
}

func publishOneByOne(client Client, s settings, value []byte, outcome result) error {
	send := client.Publisher(s.partitions, s.policy)
	for number := range warmUp {
		if err := send(number%s.partitions, value); err != nil {
			return err
		}
	}
	took := make([]time.Duration, 0, s.messages)
	var failed int64
	watch := startWatch()
	for number := range s.messages {
		began := time.Now()
		if err := send(number%s.partitions, value); err != nil {
			failed++
		}
		took = append(took, time.Since(began))
	}
	watch.stop(outcome, s.messages)
	outcome["errors"] = failed
	outcome.latencies("latency_", took)
	return nil
}

// publishWindow keeps as many messages on their way as the window has room for.
func publishWindow(client Client, s settings, value []byte, messages int) (int64, error) {
	var failed atomic.Int64
	window := make(chan struct{}, s.window)
	acked := func(err error) {
		if err != nil {
			failed.Add(1)
		}
		<-window
	}
	send := client.AsyncPublisher(s.partitions, s.policy)
	unacked := 0
	if s.policy == AckNone {
		// There is no flush: an answer to the last message to each partition takes its place.
		unacked = max(0, messages-s.partitions)
	}
	for number := range unacked {
		if err := send(number%s.partitions, value, nil); err != nil {
			return 0, err
		}
	}
	if unacked > 0 {
		send = client.AsyncPublisher(s.partitions, AckLeader)
	}
	for number := unacked; number < messages; number++ {
		window <- struct{}{}
		if err := send(number%s.partitions, value, acked); err != nil {
			return 0, err
		}
	}
	for range s.window {
		window <- struct{}{}
	}
	return failed.Load(), nil
}
