package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"belay.dev/belay/internal/chaos"
	"belay.dev/belay/test/cluster"
)

const (
	namespace = "default"
	runName   = "mend-slug"
	poll      = 200 * time.Millisecond
)

// story tells the demo.
type story struct {
	out     io.Writer
	cluster *cluster.Cluster
	samples string
	// claim is the directory behind the run's claim, uid the run's UID.
	claim, uid string
}

func (s *story) title(format string, args ...any) {
	fmt.Fprintf(s.out, "\n== %s\n", fmt.Sprintf(format, args...))
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.out, "   %s\n", fmt.Sprintf(format, args...))
}

// tell runs the chapters in order.
func (s *story) tell(ctx context.Context, broken string) error {
	for _, chapter := range []func(context.Context) error{s.apply, s.failover, s.breaker, s.midCall} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	if err := s.kill(ctx, broken == "resume"); err != nil {
		return err
	}
	for _, chapter := range []func(context.Context) error{s.resume, s.complete, s.once, s.costs} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	s.title("Done: the provider was down, the pod was killed, the run completed, and nothing was done twice")
	return nil
}

func (s *story) apply(ctx context.Context) error {
	s.title("A team applies a ladder of two legs and a run")
	if err := s.show(ctx, "apply", "-n", namespace, "-f", s.samples); err != nil {
		return err
	}
	if err := s.until(ctx, time.Minute, "the ladder is accepted", func(ctx context.Context) (bool, error) {
		v, err := s.field(ctx, "routeladder/demo", `{.status.conditions[?(@.type=="Accepted")].status}`)
		return v == "True", err
	}); err != nil {
		return err
	}
	return s.show(ctx, "get", "ladder", "-n", namespace)
}

func (s *story) failover(ctx context.Context) error {
	s.title("The primary provider answers 503 to everything; the run falls back")
	if err := s.until(ctx, 3*time.Minute, "leg b serves the run in place of leg a", func(ctx context.Context) (bool, error) {
		v, err := s.field(ctx, "agentrun/"+runName, "{.status.runner.legDisplay}")
		return v == "b (from a)", err
	}); err != nil {
		return err
	}
	if n := s.requests("primary", ""); n != 3 {
		return fmt.Errorf("the primary was asked %d times before the run gave it up, want 3", n)
	}
	s.say("the primary was asked 3 times, then its breaker opened")
	return s.show(ctx, "get", "arun", "-n", namespace)
}

func (s *story) breaker(ctx context.Context) error {
	s.title("The breaker is shared by all runs, through the API server")
	route, err := s.route(ctx, "a")
	if err != nil {
		return err
	}
	if err := s.until(ctx, time.Minute, "the route of leg a is Open for everyone", func(ctx context.Context) (bool, error) {
		v, err := s.field(ctx, "providerhealth/"+route, "{.status.state}")
		return v == "Open", err
	}); err != nil {
		return err
	}
	return s.show(ctx, "get", "providerhealth", "-n", namespace)
}

// midCall waits until the command that leaves a trace has left it, and is still running.
func (s *story) midCall(ctx context.Context) error {
	s.title("The agent works: it runs the test, reads the code, mends it, and announces the change")
	var err error
	if s.uid, err = s.field(ctx, "agentrun/"+runName, "{.metadata.uid}"); err != nil {
		return err
	}
	if s.claim, err = s.cluster.ClaimDir(ctx, namespace, "belay-"+s.uid); err != nil {
		return err
	}
	if err := s.until(ctx, 5*time.Minute, "the command of turn 4 has written effects.log and is still running", func(context.Context) (bool, error) {
		lines, err := s.effects()
		return lines == 1, err
	}); err != nil {
		return err
	}
	return nil
}

func (s *story) kill(ctx context.Context, wipe bool) error {
	s.title("SIGKILL to every process of the pod, in the middle of that call")
	pod := runName + "-1"
	if err := s.cluster.Node.KillPod(namespace, pod); err != nil {
		return err
	}
	s.say("pod %s is dead", pod)
	if wipe {
		s.say("DEMO_BREAK=resume: wiping the run's volume")
		return wipeDir(s.claim)
	}
	return nil
}

func (s *story) resume(ctx context.Context) error {
	s.title("The manager records the end and starts epoch 2")
	if err := s.until(ctx, 2*time.Minute, "pod "+runName+"-2 works", func(ctx context.Context) (bool, error) {
		v, err := s.field(ctx, "agentrun/"+runName, "{.status.runner.epoch}")
		return v == "2", err
	}); err != nil {
		return err
	}
	end, err := s.field(ctx, "agentrun/"+runName, "{.status.epochs[0].end} (exit code {.status.epochs[0].exitCode})")
	if err != nil {
		return err
	}
	s.say("epoch 1 is on record: %s", end)
	return nil
}

func (s *story) complete(ctx context.Context) error {
	s.title("The run completes")
	if err := s.until(ctx, 3*time.Minute, "the run is finished", func(ctx context.Context) (bool, error) {
		v, err := s.field(ctx, "agentrun/"+runName, `{.status.conditions[?(@.type=="Finished")].status}`)
		return v == "True", err
	}); err != nil {
		return err
	}
	verdict, err := s.field(ctx, "agentrun/"+runName, `{.status.conditions[?(@.type=="Succeeded")].status} {.status.conditions[?(@.type=="Succeeded")].reason}, resumes {.status.resumes}`)
	if err != nil {
		return err
	}
	if verdict != "True Completed, resumes 1" {
		message, _ := s.field(ctx, "agentrun/"+runName, `{.status.conditions[?(@.type=="Succeeded")].message}`)
		return fmt.Errorf("the run ended as %q (%s), want %q", verdict, message, "True Completed, resumes 1")
	}
	if err := s.show(ctx, "get", "arun", "-n", namespace, "-o", "wide"); err != nil {
		return err
	}
	answer, err := s.field(ctx, "agentrun/"+runName, "{.status.result.text}")
	if err != nil {
		return err
	}
	if answer == "" {
		return errors.New("the run has no result")
	}
	s.say("result: %s", answer)
	return nil
}

// once checks the promise: no committed answer was asked for twice, and no call was dispatched twice.
func (s *story) once(ctx context.Context) error {
	s.title("Nothing was paid for or done twice")
	turns, err := s.field(ctx, "agentrun/"+runName, "{.status.runner.turn}")
	if err != nil {
		return err
	}
	answered := s.answeredTurns("backup")
	if len(answered) == 0 || fmt.Sprint(len(answered)) != turns || len(slices.Compact(slices.Sorted(slices.Values(answered)))) != len(answered) {
		return fmt.Errorf("the backup gave answers after %v committed turns, and the run has %s turns: want one answer for each", answered, turns)
	}
	s.say("%s turns, and the backup gave exactly %d answers: none was asked for again", turns, len(answered))

	lines, err := s.effects()
	if err != nil {
		return err
	}
	starts, err := s.starts()
	if err != nil {
		return err
	}
	if lines != 1 || starts != 1 {
		return fmt.Errorf("effects.log has %d lines and the ledger %d starts for the killed command, want 1 and 1", lines, starts)
	}
	s.say("the killed command left one line in effects.log and has one tool.start in the ledger")
	verified, err := s.cluster.Belay(ctx, "ledger", "verify", s.ledgerDir())
	if err != nil {
		return err
	}
	s.command("belay ledger verify " + s.ledgerDir())
	fmt.Fprint(s.out, verified)
	return nil
}

func (s *story) costs(ctx context.Context) error {
	s.title("What each leg was used for, and how the routes are")
	if err := s.show(ctx, "get", "arun", "-n", namespace, runName, "-o",
		`jsonpath={range .status.legs[*]}leg {.name}: {.usage.requests} requests, {.usage.totalTokens} tokens, {.usage.cost} USD{"\n"}{end}`); err != nil {
		return err
	}
	return s.show(ctx, "get", "providerhealth", "-n", namespace)
}

// show runs kubectl as a person would and prints what it printed.
func (s *story) show(ctx context.Context, args ...string) error {
	s.command("kubectl " + strings.Join(quoted(args), " "))
	out, err := s.cluster.Kubectl(ctx, args...)
	fmt.Fprint(s.out, out)
	return err
}

func (s *story) command(line string) { fmt.Fprintf(s.out, "$ %s\n", line) }

func quoted(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if strings.ContainsAny(a, " {}'\"*") {
			out[i] = "'" + a + "'"
		}
	}
	return out
}

func (s *story) field(ctx context.Context, object, path string) (string, error) {
	return s.cluster.Kubectl(ctx, "get", "-n", namespace, object, "-o", "jsonpath="+path)
}

// route is the name of the ProviderHealth object of a leg.
func (s *story) route(ctx context.Context, leg string) (string, error) {
	return s.field(ctx, "routeladder/demo", fmt.Sprintf(`{.status.legs[?(@.name==%q)].route}`, leg))
}

// until waits for a promise to come true, and says so. A run that ends before its time is told at once.
func (s *story) until(ctx context.Context, limit time.Duration, promise string, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		ok, err := holds(ctx)
		if err != nil {
			return fmt.Errorf("while waiting that %s: %w", promise, err)
		}
		if ok {
			s.say("%s", promise)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s it is still not true that %s", limit, promise)
		case <-ticker.C:
		}
	}
}

func (s *story) requests(leg, outcome string) int {
	n := 0
	for _, r := range s.cluster.Providers.Requests() {
		if r.Leg == leg && (outcome == "" || string(r.Outcome) == outcome) {
			n++
		}
	}
	return n
}

// answeredTurns are, for each complete answer of a leg, the committed turns that the request had.
func (s *story) answeredTurns(leg string) []int {
	var turns []int
	for _, r := range s.cluster.Providers.Requests() {
		if r.Leg == leg && r.Outcome == chaos.OutcomeCompleted {
			turns = append(turns, r.AssistantTurns)
		}
	}
	return turns
}

func (s *story) ledgerDir() string { return filepath.Join(s.claim, "ledger", s.uid) }

// effects counts the lines of effects.log, 0 while there is none.
func (s *story) effects() (int, error) {
	data, err := os.ReadFile(filepath.Join(s.claim, "workspace", "effects.log"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return strings.Count(string(data), "\n"), err
}

// evidence prints what a person would look at after a failure.
func (s *story) evidence(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "arun,ladder,providerhealth,pod,pvc", "-n", namespace, "-o", "wide"},
		{"get", "arun", "-n", namespace, runName, "-o", "yaml"},
		{"get", "events", "-n", namespace, "--sort-by=.lastTimestamp"},
	} {
		if err := s.show(ctx, args...); err != nil {
			s.say("%v", err)
		}
	}
}

func wipeDir(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}
