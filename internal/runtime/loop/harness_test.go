package loop_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"belay.dev/belay/internal/chaos"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/anthropic"
	"belay.dev/belay/internal/runtime/provider/openaichat"
	"belay.dev/belay/internal/runtime/route"
	"belay.dev/belay/internal/runtime/tools"
)

const testUID = "5f0e7a0c-0000-4000-8000-000000000001"

// leapClock makes every wait of the loop pass at once, and remembers how long it would have been.
type leapClock struct {
	*clocktesting.FakeClock
	mu    sync.Mutex
	waits []time.Duration
	// still keeps the time where it is.
	still bool
}

func newLeapClock() *leapClock {
	return &leapClock{FakeClock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))}
}

func (c *leapClock) NewTimer(d time.Duration) clock.Timer {
	t := c.FakeClock.NewTimer(d)
	c.mu.Lock()
	c.waits = append(c.waits, d)
	c.mu.Unlock()
	if !c.still {
		c.Step(d)
	}
	return t
}

// providersURL is where all scripted providers are, whatever port they really listen on: the routes of two scenes are
// the same.
const providersURL = "http://providers.test.svc"

// scene is a ladder over scripted providers, a ledger in a directory, and a workspace.
type scene struct {
	t         *testing.T
	providers *chaos.Server
	address   string
	dir       string
	clock     *leapClock
	ladder    ladder.Ladder
	targets   map[string]provider.Target
	contract  record.Contract
	workspace *workspace
	// current, if set, changes what the ladder looks like at the n-th look at it, counted from 1.
	current func(n int, l *loop.Ladder)
	looks   int
	// models, health, disk and random replace what the loop works with.
	models func(loop.Models) loop.Models
	health loop.Health
	disk   func(loop.Ledger) loop.Ledger
	random func() float64
	// open changes how the ledger is opened.
	open func(*ledger.Options)
	// watch is told each record.
	watch func(payload any)
	// conn wraps each connection to a provider.
	conn func(net.Conn) net.Conn
	// seen are the records of the last epoch.
	seen []any
}

func newScene(t *testing.T, script string, legs ...string) *scene {
	t.Helper()
	return seededScene(t, 1, script, legs...)
}

func seededScene(t *testing.T, seed uint64, script string, legs ...string) *scene {
	t.Helper()
	parsed, err := chaos.ParseScript([]byte(script))
	if err != nil {
		t.Fatalf("the test's script: %v", err)
	}
	server := chaos.NewServer(parsed, chaos.Options{Seed: seed})
	listener := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
	})
	s := &scene{
		t: t, providers: server, address: listener.Listener.Addr().String(), dir: filepath.Join(t.TempDir(), testUID), clock: newLeapClock(),
		targets: map[string]provider.Target{}, workspace: newWorkspace(),
		contract: record.Contract{Task: "do it", Routing: record.Routing{Metered: "Allow"}, Limits: record.Limits{MaxTurns: 50, MaxModelRetries: new(100)}},
	}
	var chain []ladder.Leg
	for _, name := range legs {
		r := route.Route{BaseURL: providersURL + "/" + name + "/v1", Dialect: route.OpenAIChat, Model: "m", SecretName: "keys", SecretKey: name}
		if parsed.Legs[name].Dialect == route.AnthropicMessages {
			r.BaseURL, r.Dialect = providersURL+"/"+name, route.AnthropicMessages
		}
		price := budget.NewPrice(1_000_000, 2_000_000, nil, nil)
		chain = append(chain, ladder.Leg{Name: name, Provider: name, Route: r, ContextWindow: 128_000, Price: &price})
		s.targets[name] = provider.Target{
			Leg: name, Route: r, Secret: "key", Insecure: provider.InsecureCluster, MaxOutputTokens: 4096, Timeouts: provider.DefaultTimeouts(),
		}
	}
	s.ladder = ladder.New("test", chain...)
	s.ladder.Generation = 1
	return s
}

func (s *scene) Current(context.Context) (loop.Ladder, error) {
	s.looks++
	l := loop.Ladder{Ladder: s.ladder, Targets: maps.Clone(s.targets)}
	l.Legs = slices.Clone(s.ladder.Legs)
	if s.current != nil {
		s.current(s.looks, &l)
	}
	return l, nil
}

// target changes the transport settings of a leg.
func (s *scene) target(leg string, change func(*provider.Target)) {
	t := s.targets[leg]
	change(&t)
	s.targets[leg] = t
}

func (s *scene) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, s.address)
	if err == nil && s.conn != nil {
		c = s.conn(c)
	}
	return c, err
}

// until polls for a condition.
func (s *scene) until(holds func() bool) {
	s.t.Helper()
	deadline, poll := time.After(10*time.Second), time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-deadline:
			s.t.Fatal("the condition did not hold within 10 s")
		}
	}
}

// run carries the run on by one epoch.
func (s *scene) run() (loop.End, error) {
	s.t.Helper()
	return s.runContext(s.t.Context())
}

func (s *scene) runContext(ctx context.Context) (loop.End, error) {
	s.t.Helper()
	options := ledger.Options{Dir: s.dir, RunUID: testUID, Now: s.clock.Now}
	if s.open != nil {
		s.open(&options)
	}
	book, _, err := ledger.Open(options)
	if err != nil {
		s.t.Fatalf("open the ledger: %v", err)
	}
	client := provider.NewClient(provider.Options{DialContext: s.dial}, openaichat.Dialect{}, anthropic.Dialect{})
	defer client.Close()
	models, disk, random := loop.Models(client), loop.Ledger(book), s.random
	if s.models != nil {
		models = s.models(client)
	}
	if s.disk != nil {
		disk = s.disk(book)
	}
	if random == nil {
		random = func() float64 { return 0.5 }
	}
	s.seen = nil
	end, err := loop.Run(ctx, loop.Config{
		Identity: loop.Identity{RunUID: testUID, Namespace: "default", Name: "r", Version: "test"},
		Contract: s.contract, Limits: s.contract.Limits, Ledger: disk, Entries: ledger.Replay(options.FS, s.dir),
		Ladders: s, Models: models, Health: s.health, Clock: s.clock, Random: random,
		Observe: func(_ time.Time, p any) {
			s.seen = append(s.seen, p)
			if s.watch != nil {
				s.watch(p)
			}
		},
		Open: func(context.Context) (loop.Workspace, []tools.Tool, error) {
			return s.workspace, s.workspace.tools, nil
		},
	})
	if closed := book.Close(); closed != nil && err == nil {
		s.t.Fatalf("close the ledger: %v", closed)
	}
	return end, err
}

// finish runs to the end of the run and returns it.
func (s *scene) finish() record.RunEnd {
	s.t.Helper()
	end, err := s.run()
	if err != nil {
		s.t.Fatalf("run: %v", err)
	}
	if end.Finished == nil {
		s.t.Fatalf("the run did not finish: parked %+v, suspended %+v", end.Parked, end.Suspended)
	}
	return *end.Finished
}

// requests counts what reached a leg.
func (s *scene) requests(leg string) int {
	n := 0
	for _, r := range s.providers.Requests() {
		if r.Leg == leg {
			n++
		}
	}
	return n
}

// refusals are the requests that a strict provider refused for their shape.
func (s *scene) refusals() []string {
	var out []string
	for _, r := range s.providers.Requests() {
		for _, e := range r.Problems {
			out = append(out, fmt.Sprintf("%s: %v", r.Leg, e))
		}
	}
	return out
}

// expectRequests compares the counts at the providers with those written down, for example "a=3 b=1".
func (s *scene) expectRequests(want string) {
	s.t.Helper()
	var got []string
	for _, leg := range s.ladder.Legs {
		got = append(got, fmt.Sprintf("%s=%d", leg.Name, s.requests(leg.Name)))
	}
	if g := strings.Join(got, " "); g != want {
		s.t.Errorf("requests %s, want %s", g, want)
	}
}

// workspace is a tool server in memory, which remembers its calls as the real one does.
type workspace struct {
	mu    sync.Mutex
	tools []tools.Tool
	boot  string
	jobs  map[string]tools.JobState
	// dispatched are the calls that ran, in order, as tool:id:attempt.
	dispatched []string
	// answer overrides what a tool answers.
	answer func(tools.Call) tools.Outcome
}

func newWorkspace() *workspace {
	schema := []byte(`{"type":"object","properties":{"count":{"type":"integer"}},"additionalProperties":false}`)
	return &workspace{
		boot: "boot-1", jobs: map[string]tools.JobState{},
		tools: []tools.Tool{
			{Name: "look", InputSchema: schema, Effect: tools.ReadOnly},
			{Name: "act", InputSchema: schema, Effect: tools.Supervised},
			{Name: "post", InputSchema: schema, Effect: tools.Opaque},
		},
	}
}

func (w *workspace) BootID() string { return w.boot }

func (w *workspace) Call(_ context.Context, c tools.Call) tools.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	if job, known := w.jobs[c.ID]; known && c.Tool == "act" {
		return *job.Outcome
	}
	w.dispatched = append(w.dispatched, fmt.Sprintf("%s:%s:%d", c.Tool, c.ID, c.Attempt))
	out := tools.Outcome{Status: tools.OK, Text: "done " + c.Tool}
	if w.answer != nil {
		out = w.answer(c)
	}
	w.jobs[c.ID] = tools.JobState{State: tools.JobFinished, Outcome: &out, BootID: w.boot, SpoolIntact: true}
	return out
}

func (w *workspace) Inspect(_ context.Context, id string) (tools.JobState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if job, known := w.jobs[id]; known {
		return job, nil
	}
	return tools.JobState{State: tools.JobUnknown, BootID: w.boot, SpoolIntact: true}, nil
}

// counts is how often each tool ran.
func (w *workspace) counts() map[string]int {
	out := map[string]int{}
	for _, d := range w.dispatched {
		tool, _, _ := strings.Cut(d, ":")
		out[tool]++
	}
	return out
}

// find returns the records of one type that the last epoch wrote.
func find[T any](s *scene) []*T {
	var out []*T
	for _, p := range s.seen {
		if v, ok := p.(*T); ok {
			out = append(out, v)
		}
	}
	return slices.Clip(out)
}
