package main

import (
	"context"
	"io"
	"os"
	"sync"
	"time"

	lift "github.com/liftbridge-io/go-liftbridge/v2"
	api "github.com/liftbridge-io/liftbridge-api/v2/go"
	"google.golang.org/grpc/binarylog"
	binlog "google.golang.org/grpc/binarylog/grpc_binarylog_v1"
	"google.golang.org/protobuf/proto"
)

const leaveTimeout = 3 * time.Second

// event is what a member of a group did, got or said, and when (Unix nanoseconds).
type event struct {
	Event       string                     `json:"event"`
	At          int64                      `json:"at"`
	Stream      string                     `json:"stream,omitempty"`
	Partition   int32                      `json:"partition"`
	Offset      int64                      `json:"offset"`
	Value       string                     `json:"value,omitempty"`
	Epoch       uint64                     `json:"epoch"`
	Coordinator string                     `json:"coordinator,omitempty"`
	Assignments []*api.PartitionAssignment `json:"assignments,omitempty"`
	Text        string                     `json:"text,omitempty"`
}

func tell(name string, e event) {
	e.Event, e.At = name, time.Now().UnixNano()
	emit(e)
}

// member GROUP CONSUMER CHECKPOINT_MS FETCH_MS STREAM…: is a member of a group until its input ends,
// from the earliest message or the checkpoint on; then it stores a checkpoint and leaves.
//
// go-liftbridge hands over messages and says nothing of assignments and checkpoints. They are seen in
// the calls that it makes, if GRPC_BINARY_LOG_FILTER names the service proto.API.
func member(ctx context.Context, client lift.Client, args []string) error {
	ctx = context.WithoutCancel(ctx)
	fetch := time.Duration(number(args[3])) * time.Millisecond
	consumer, err := client.CreateConsumer(
		args[0], lift.ConsumerID(args[1]), lift.AutoOffsetEarliest(),
		lift.AutoCheckpoint(time.Duration(number(args[2]))*time.Millisecond),
		lift.FetchAssignmentsInterval(func(time.Duration) time.Duration { return fetch }),
	)
	if err != nil {
		return err
	}
	handler := func(m *lift.Message, err error) {
		if err != nil {
			tell("failed", event{Text: err.Error()})
			return
		}
		tell("handled", event{
			Stream: m.Stream(), Partition: m.Partition(), Offset: m.Offset(), Value: string(m.Value()),
		})
	}
	if err := consumer.Subscribe(ctx, args[4:], handler); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := consumer.Checkpoint(ctx); err != nil {
		return err
	}
	left := make(chan error, 1)
	go func() { left <- consumer.Close() }()
	select {
	case err := <-left:
		return err
	case <-time.After(leaveTimeout): // it has left, but may wait for its own loop forever
		return nil
	}
}

// calls reads the log of calls that gRPC keeps, and tells what a group has to do with.
type calls struct {
	mu      sync.Mutex
	methods map[uint64]string
	commits map[uint64]*api.SetCursorRequest
}

func init() {
	binarylog.SetSink(&calls{
		methods: map[uint64]string{}, commits: map[uint64]*api.SetCursorRequest{},
	})
}

func (c *calls) Close() error { return nil }

func (c *calls) Write(entry *binlog.GrpcLogEntry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := entry.CallId
	switch entry.Type {
	case binlog.GrpcLogEntry_EVENT_TYPE_CLIENT_HEADER:
		c.methods[id] = entry.GetClientHeader().MethodName
	case binlog.GrpcLogEntry_EVENT_TYPE_CLIENT_MESSAGE:
		c.sent(id, entry.GetMessage().Data)
	case binlog.GrpcLogEntry_EVENT_TYPE_SERVER_MESSAGE:
		c.received(id, entry.GetMessage().Data)
	case binlog.GrpcLogEntry_EVENT_TYPE_SERVER_TRAILER, binlog.GrpcLogEntry_EVENT_TYPE_CANCEL:
		if commit := c.commits[id]; commit != nil {
			tell("commit-ended", event{
				Stream: commit.Stream, Partition: commit.Partition, Offset: commit.Offset,
				Text: entry.GetTrailer().GetStatusMessage(),
			})
		}
		delete(c.methods, id)
		delete(c.commits, id)
	}
	return nil
}

func (c *calls) sent(id uint64, data []byte) {
	switch c.methods[id] {
	case "/proto.API/SetCursor":
		request := &api.SetCursorRequest{}
		decode(data, request)
		c.commits[id] = request
		tell("commit", event{
			Stream: request.Stream, Partition: request.Partition, Offset: request.Offset,
			Text: request.CursorId,
		})
	case "/proto.API/Subscribe":
		request := &api.SubscribeRequest{}
		decode(data, request)
		tell("subscribe", event{
			Stream: request.Stream, Partition: request.Partition, Offset: request.StartOffset,
			Epoch: request.GetConsumer().GetGroupEpoch(), Text: request.StartPosition.String(),
		})
	case "/proto.API/ReportConsumerGroupCoordinator":
		request := &api.ReportConsumerGroupCoordinatorRequest{}
		decode(data, request)
		tell("report", event{Coordinator: request.Coordinator, Epoch: request.Epoch})
	}
}

func (c *calls) received(id uint64, data []byte) {
	switch c.methods[id] {
	case "/proto.API/JoinConsumerGroup":
		reply := &api.JoinConsumerGroupResponse{}
		decode(data, reply)
		tell("joined", event{Coordinator: reply.Coordinator, Epoch: reply.Epoch})
	case "/proto.API/FetchConsumerGroupAssignments":
		reply := &api.FetchConsumerGroupAssignmentsResponse{}
		decode(data, reply)
		tell("assigned", event{Epoch: reply.Epoch, Assignments: reply.Assignments})
	}
}

// decode reads a message that gRPC has just written or read; failing is a mistake in this program.
func decode(data []byte, message proto.Message) {
	if err := proto.Unmarshal(data, message); err != nil {
		panic(err)
	}
}
