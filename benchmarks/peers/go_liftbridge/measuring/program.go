package measuring

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// A run that takes longer has lost something that it waits for.
const bound = 180 * time.Second

type settings struct {
	partitions  int
	messages    int
	messageSize int
	window      int
	expected    int
	policy      Policy
	start       Start
	rate        int
	duration    time.Duration
}

var commands = map[string]func(Client, settings, result) error{
	"consume": consume,
	"publish": publish,
	"latency": latency,
}

// Main runs the command that the arguments name and prints its result as one line of JSON.
func Main(name, module string, connect func(servers []string, stream string) (Client, error)) {
	time.AfterFunc(bound, func() { fail(fmt.Errorf("not finished after %v", bound)) })
	outcome, err := run(connect)
	if err != nil {
		fail(err)
	}
	outcome["client"], outcome["version"] = name, version(module)
	line, err := json.Marshal(outcome)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func run(connect func(servers []string, stream string) (Client, error)) (result, error) {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		return nil, errors.New("usage: consume|publish|latency --servers HOST:PORT --stream NAME …")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	servers := flags.String("servers", "", "addresses, separated by commas")
	stream := flags.String("stream", "", "its name")
	policy := flags.String("ack-policy", string(AckLeader), "leader, all or none")
	start := flags.String("start", string(Earliest), "where to begin: earliest")
	duration := flags.Float64("duration", 10, "of publishing, in seconds")
	var s settings
	flags.IntVar(&s.partitions, "partitions", 1, "to use, from 0")
	flags.IntVar(&s.messages, "messages", 100_000, "to publish")
	flags.IntVar(&s.messageSize, "message-size", 250, "of a value, in bytes")
	flags.IntVar(&s.window, "window", 1, "messages on their way at once")
	flags.IntVar(&s.expected, "expected", 0, "messages to consume from all partitions")
	flags.IntVar(&s.rate, "rate", 1000, "messages per second")
	if err := flags.Parse(os.Args[2:]); err != nil {
		return nil, err
	}
	s.policy, s.start = Policy(*policy), Start(*start)
	s.duration = time.Duration(*duration * float64(time.Second))
	client, err := connect(strings.Split(*servers, ","), *stream)
	if err != nil {
		return nil, err
	}
	// Closing is left to the end of the process: it waits for the server.
	outcome := result{"errors": int64(0)}
	return outcome, commands[os.Args[1]](client, s, outcome)
}

// version is the one that the program was built with.
func version(module string) string {
	build, _ := debug.ReadBuildInfo()
	for _, dependency := range build.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return "unknown"
}
