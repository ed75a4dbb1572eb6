package measuring

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// atRate calls publish for each message when it is due, and at once for those that are late. The
// kernel's timer is exact where that of the runtime may be a millisecond late, which would count
// as the client's.
func atRate(rate, messages int, publish func(due time.Time) error) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("timer: %w", err)
	}
	timer := os.NewFile(uintptr(fd), "timer")
	defer timer.Close()
	interval := time.Second / time.Duration(rate)
	each := unix.NsecToTimespec(int64(interval))
	began := time.Now()
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Interval: each, Value: each}, nil); err != nil {
		return fmt.Errorf("timer: %w", err)
	}
	ticks := make([]byte, 8)
	for number := 0; number < messages; {
		if _, err := timer.Read(ticks); err != nil {
			return fmt.Errorf("timer: %w", err)
		}
		for range min(binary.NativeEndian.Uint64(ticks), uint64(messages-number)) {
			number++
			if err := publish(began.Add(time.Duration(number) * interval)); err != nil {
				return err
			}
		}
	}
	return nil
}
