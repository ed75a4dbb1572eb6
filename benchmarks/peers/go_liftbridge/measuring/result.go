package measuring

import (
	"slices"
	"syscall"
	"time"
)

// A result is what will be printed.
type result map[string]any

// A stopwatch measures time and this process's use of the processors.
type stopwatch struct {
	began time.Time
	cpu   time.Duration
}

func startWatch() stopwatch {
	return stopwatch{time.Now(), cpuTime()}
}

func (s stopwatch) stop(outcome result, messages int) {
	seconds := time.Since(s.began).Seconds()
	outcome["client_cpu_seconds"] = (cpuTime() - s.cpu).Seconds()
	outcome["messages"] = messages
	outcome["seconds"] = seconds
	outcome["messages_per_second"] = float64(messages) / seconds
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

var ranks = []struct {
	name string
	part float64
}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1}}

// latencies adds percentiles (nearest rank) in microseconds.
func (r result) latencies(prefix string, all []time.Duration) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	for _, rank := range ranks {
		index := max(0, min(len(all)-1, int(rank.part*float64(len(all))+0.999999)-1))
		r[prefix+rank.name] = float64(all[index]) / float64(time.Microsecond)
	}
}
