package measuring

import (
	"context"
	"sync/atomic"
)

// consume reads all partitions at once until it has as many messages as expected.
func consume(client Client, s settings, outcome result) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var received, outOfOrder atomic.Int64
	expected := int64(s.expected)
	done := make(chan error, s.partitions+1)

	watch := startWatch()
	for partition := range s.partitions {
		next := int64(-1)
		err := client.Read(ctx, partition, s.start, func(offset int64, value []byte, err error) {
			if err != nil {
				done <- err
				return
			}
			if next != offset && next != -1 || len(value) == 0 {
				outOfOrder.Add(1)
			}
			next = offset + 1
			if received.Add(1) == expected {
				done <- nil
			}
		})
		if err != nil {
			return err
		}
	}
	err := <-done
	watch.stop(outcome, s.expected)
	outcome["errors"] = outOfOrder.Load()
	return err
}
