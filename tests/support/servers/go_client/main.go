// Command go_client does one thing at a Liftbridge server through go-liftbridge and prints what
// came of it as JSON, one value per line. It is what the tests compare other clients with.
//
//	go_client ADDRESS[,ADDRESS…] COMMAND [ARGUMENT…]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	lift "github.com/liftbridge-io/go-liftbridge/v2"
)

const timeout = 40 * time.Second

type command func(ctx context.Context, client lift.Client, args []string) error

var commands = map[string]command{
	"create":        create,
	"delete":        deleteStream,
	"pause":         pause,
	"readonly":      readonly,
	"metadata":      metadata,
	"publish":       publish,
	"publish-async": publishAsync,
	"publish-to":    publishToSubject,
	"read":          read,
	"follow":        follow,
	"set-cursor":    setCursor,
	"fetch-cursor":  fetchCursor,
	"consume":       consume,
	"member":        member,
}

type message struct {
	Stream    string            `json:"stream"`
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Key       string            `json:"key"`
	Value     string            `json:"value"`
	Headers   map[string]string `json:"headers"`
	Subject   string            `json:"subject"`
	Timestamp int64             `json:"timestamp"`
}

type ack struct {
	Stream        string `json:"stream"`
	Subject       string `json:"subject"`
	Offset        int64  `json:"offset"`
	CorrelationID string `json:"correlation_id"`
	Policy        int32  `json:"policy"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		emit(map[string]string{"error": err.Error()})
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 || commands[args[1]] == nil {
		return fmt.Errorf("usage: go_client ADDRESS[,ADDRESS…] COMMAND [ARGUMENT…]")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	client, err := lift.ConnectCtx(ctx, strings.Split(args[0], ","))
	if err != nil {
		return err
	}
	return commands[args[1]](ctx, client, args[2:])
}

// emit writes one line; a value that cannot be written is a mistake in this program.
func emit(value any) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}

func fromAck(a *lift.Ack) ack {
	return ack{a.Stream(), a.MessageSubject(), a.Offset(), a.CorrelationID(), int32(a.AckPolicy())}
}

func fromMessage(m *lift.Message) message {
	headers := map[string]string{}
	for name, value := range m.Headers() {
		headers[name] = string(value)
	}
	return message{
		m.Stream(), m.Partition(), m.Offset(), string(m.Key()), string(m.Value()), headers,
		m.Subject(), m.Timestamp().UnixNano(),
	}
}

// create STREAM PARTITIONS
func create(ctx context.Context, client lift.Client, args []string) error {
	return client.CreateStream(ctx, args[0], args[0], lift.Partitions(int32(number(args[1]))))
}

// delete STREAM
func deleteStream(ctx context.Context, client lift.Client, args []string) error {
	return client.DeleteStream(ctx, args[0])
}

// pause STREAM
func pause(ctx context.Context, client lift.Client, args []string) error {
	return client.PauseStream(ctx, args[0])
}

// readonly STREAM true|false
func readonly(ctx context.Context, client lift.Client, args []string) error {
	return client.SetStreamReadonly(ctx, args[0], lift.Readonly(args[1] == "true"))
}

// metadata STREAM
func metadata(ctx context.Context, client lift.Client, args []string) error {
	cluster, err := client.FetchMetadata(ctx)
	if err != nil {
		return err
	}
	stream := cluster.GetStream(args[0])
	if stream == nil {
		return lift.ErrNoSuchStream
	}
	ids := []int32{}
	for id := range stream.Partitions() {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	for _, id := range ids {
		info, err := client.FetchPartitionMetadata(ctx, args[0], id)
		if err != nil {
			return err
		}
		emit(map[string]any{
			"id": info.ID(), "leader": info.Leader().Addr(), "subject": stream.Subject(),
			"replicas": len(info.Replicas()), "isr": len(info.ISR()),
			"high_watermark": info.HighWatermark(), "newest_offset": info.NewestOffset(),
			"paused": info.Paused(), "brokers": len(cluster.Brokers()),
		})
	}
	return nil
}

// publish STREAM KEY VALUE…: by key, with headers and ack ALL
func publish(ctx context.Context, client lift.Client, args []string) error {
	for _, value := range args[2:] {
		received, err := client.Publish(
			ctx, args[0], []byte(value), lift.Key([]byte(args[1])), lift.PartitionByKey(),
			lift.Header("by", []byte("go")), lift.AckPolicyAll(), lift.CorrelationID("id-"+value),
		)
		if err != nil {
			return err
		}
		emit(fromAck(received))
	}
	return nil
}

// publish-async STREAM COUNT: the values are 0, 1, 2, …; prints the acks as they came
func publishAsync(ctx context.Context, client lift.Client, args []string) error {
	count := int(number(args[1]))
	acks := make(chan ack, count)
	failures := make(chan error, count)
	for i := 0; i < count; i++ {
		handler := func(received *lift.Ack, err error) {
			if err != nil {
				failures <- err
				return
			}
			acks <- fromAck(received)
		}
		id := lift.CorrelationID(strconv.Itoa(i))
		if err := client.PublishAsync(ctx, args[0], []byte(strconv.Itoa(i)), handler, id); err != nil {
			return err
		}
	}
	for i := 0; i < count; i++ {
		select {
		case received := <-acks:
			emit(received)
		case err := <-failures:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// publish-to SUBJECT VALUE
func publishToSubject(ctx context.Context, client lift.Client, args []string) error {
	received, err := client.PublishToSubject(ctx, args[0], []byte(args[1]))
	if err != nil {
		return err
	}
	emit(fromAck(received))
	return nil
}

// subscribe prints messages until the subscription ends or `limit` have come.
func subscribe(
	ctx context.Context, client lift.Client, stream string, limit int64, opts ...lift.SubscriptionOption,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	var once sync.Once
	var seen int64
	subscribed := make(chan struct{})
	handler := func(m *lift.Message, err error) {
		<-subscribed // messages may come before Subscribe returns
		if err != nil {
			once.Do(func() { ended <- err })
			return
		}
		if seen == limit {
			return
		}
		emit(fromMessage(m))
		if seen++; seen == limit {
			once.Do(func() { ended <- nil })
		}
	}
	if err := client.Subscribe(ctx, stream, handler, opts...); err != nil {
		return err
	}
	emit("subscribed")
	close(subscribed)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// read STREAM PARTITION: from the earliest to the latest message
func read(ctx context.Context, client lift.Client, args []string) error {
	err := subscribe(
		ctx, client, args[0], -1, lift.Partition(int32(number(args[1]))),
		lift.StartAtEarliestReceived(), lift.StopAtLatestReceived(),
	)
	if err == lift.ErrReadonlyPartition { // so go-liftbridge calls the end
		return nil
	}
	return err
}

// follow STREAM OFFSET COUNT: so many messages, those that are still to come included
func follow(ctx context.Context, client lift.Client, args []string) error {
	return subscribe(ctx, client, args[0], number(args[2]), lift.StartAtOffset(number(args[1])))
}

// set-cursor ID STREAM PARTITION OFFSET
func setCursor(ctx context.Context, client lift.Client, args []string) error {
	return client.SetCursor(ctx, args[0], args[1], int32(number(args[2])), number(args[3]))
}

// fetch-cursor ID STREAM PARTITION
func fetchCursor(ctx context.Context, client lift.Client, args []string) error {
	offset, err := client.FetchCursor(ctx, args[0], args[1], int32(number(args[2])))
	if err != nil {
		return err
	}
	emit(offset)
	return nil
}

// consume GROUP STREAM COUNT: as a member of a group, from the earliest message or the checkpoint;
// stores the checkpoint and leaves. The stream has one partition.
func consume(ctx context.Context, client lift.Client, args []string) error {
	count := number(args[2])
	messages := make(chan *lift.Message)
	failures := make(chan error, 1)
	consumer, err := client.CreateConsumer(
		args[0], lift.AutoOffsetEarliest(), lift.AutoCheckpoint(0),
		lift.FetchAssignmentsInterval(func(time.Duration) time.Duration { return 100 * time.Millisecond }),
	)
	if err != nil {
		return err
	}
	handler := func(m *lift.Message, err error) {
		if err != nil {
			select {
			case failures <- err:
			default:
			}
			return
		}
		select {
		case messages <- m:
		case <-ctx.Done():
		}
	}
	if err := consumer.Subscribe(ctx, []string{args[1]}, handler); err != nil {
		return err
	}
	var last *lift.Message
	for i := int64(0); i < count; i++ {
		select {
		case m := <-messages:
			last = m
			emit(fromMessage(m))
		case err := <-failures:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// An offset counts as consumed once its handler has returned, which nothing tells.
	for stored := int64(-1); stored != last.Offset(); {
		select {
		case <-messages: // once more, where the epoch of the group has changed meanwhile
		default:
		}
		if err := consumer.Checkpoint(ctx); err != nil {
			return err
		}
		stored, err = client.FetchCursor(ctx, "__group:"+args[0], args[1], last.Partition())
		if err != nil {
			return err
		}
	}
	return consumer.Close()
}
