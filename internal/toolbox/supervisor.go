package toolbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"belay.dev/belay/internal/runtime/tools"
)

// Supervisor runs jobs, each at most once, and remembers what became of them.
type Supervisor struct {
	config   Config
	bootID   string
	spool    *spool
	launcher *launcher

	ctx    context.Context // of all jobs; its cause is errStopping
	cancel context.CancelCauseFunc
	wait   sync.WaitGroup
	reaper chan struct{} // closed when nobody waits for orphans any more

	drained   chan struct{} // closed when all jobs have ended for good
	drainOnce sync.Once

	mu       sync.Mutex
	stopping bool
	jobs     map[string]*job
	started  map[string]struct{} // every call id this boot has started
	commands int                 // running process trees
}

// job is one call that has been started in this boot.
type job struct {
	start   startRecord
	cancel  context.CancelCauseFunc
	done    chan struct{}
	outcome tools.Outcome // valid when done is closed
}

// request is what identifies a job.
type request struct {
	callID     string
	attempt    int
	tool       string
	argsSHA256 string
	epoch      int64
}

func startSupervisor(config Config) (*Supervisor, error) {
	s := &Supervisor{
		config: config, bootID: randomID(), jobs: make(map[string]*job), started: make(map[string]struct{}),
		reaper: make(chan struct{}), drained: make(chan struct{}),
	}
	var err error
	if s.spool, err = openSpool(config.Workspace, config.Run, config.Epoch, config.Socket+".spool", config.Clock); err != nil {
		return nil, err
	}
	if s.launcher, err = newLauncher(); err != nil {
		return nil, errors.Join(err, s.spool.close())
	}
	if left := s.killLeftovers(); left > 0 {
		config.Logger.Warn("processes of an earlier start could not be ended", "processes", left)
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGCHLD)
	go func() {
		defer close(s.reaper)
		defer signal.Stop(signals)
		for {
			select {
			case <-s.ctx.Done():
				return
			case <-signals:
				s.launcher.reap()
			}
		}
	}()
	return s, nil
}

// killLeftovers ends processes of this workspace's earlier supervisors.
func (s *Supervisor) killLeftovers() int {
	find := func() []process {
		self := os.Getpid()
		return family(scanProcesses(), func(p process) bool {
			return p.pid != self && !p.dead() && tagOf(p.pid, tagSpool) == s.spool.id
		})
	}
	return killAll(context.Background(), s.config.Clock, find, s.launcher.reap)
}

// drain refuses new jobs, ends all others and waits until their outcomes are stored.
func (s *Supervisor) drain() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.cancel(errStopping)
	s.wait.Wait()
	s.drainOnce.Do(func() { close(s.drained) })
}

// stop drains the supervisor and gives up the spool.
func (s *Supervisor) stop() error {
	s.drain()
	<-s.reaper
	s.launcher.reap()
	s.launcher.stop()
	return s.spool.close()
}

// do runs a job and waits for its outcome. If the call id is known, it waits
// for the running job or returns the stored outcome instead. A ctx cancelled
// by the caller (its cause is context.Canceled) stops the job; one that ends
// for another reason, such as a lost connection, only ends the waiting.
func (s *Supervisor) do(ctx context.Context, r request, run func(context.Context, startRecord) tools.Outcome) tools.Outcome {
	j, settled := s.admit(r, run)
	if settled != nil {
		return *settled
	}
	select {
	case <-j.done:
		return j.outcome
	case <-ctx.Done():
	}
	// Nobody listens for this answer any more.
	if errors.Is(context.Cause(ctx), context.Canceled) {
		j.cancel(errWithdrawn)
	}
	return tools.Outcome{Status: tools.Cancelled, ErrorKind: tools.KindCancelled, StartedAt: j.start.StartedAt,
		Text: "The call was started and its caller went away."}
}

// admit finds or starts the job, or says at once how the call ended.
func (s *Supervisor) admit(r request, run func(context.Context, startRecord) tools.Outcome) (*job, *tools.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, refusal(tools.KindProcessCrashed, "The call was not executed: %v.", errStopping)
	}
	if j, ok := s.jobs[r.callID]; ok {
		if !j.start.same(r) {
			return nil, foreign(j.start)
		}
		return j, nil
	}
	start, stored, known, err := s.spool.lookup(r.callID)
	_, started := s.started[r.callID]
	switch {
	case err != nil:
		return nil, refusal(tools.KindExecutionFailed, "The call was not executed: %v.", err)
	case known && start.Tool != "" && !start.same(r):
		return nil, foreign(start)
	case known && stored != nil:
		return nil, stored
	case known || started:
		return nil, inDoubt(start)
	}
	start = startRecord{
		Version: 1, CallID: r.callID, Attempt: r.attempt, Tool: r.tool, ArgsSHA256: r.argsSHA256,
		BootID: s.bootID, Epoch: r.epoch, StartedAt: s.config.Clock.Now().UTC(),
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	j := &job{start: start, cancel: cancel, done: make(chan struct{})}
	s.jobs[r.callID] = j
	s.wait.Go(func() {
		defer cancel(nil)
		s.perform(ctx, j, run)
	})
	return j, nil
}

func (s *Supervisor) perform(ctx context.Context, j *job, run func(context.Context, startRecord) tools.Outcome) {
	if err := s.spool.begin(j.start); err != nil {
		outcome := refusal(tools.KindExecutionFailed, "The call was not executed, because its start could not be recorded: %v.", err)
		s.settle(j, *outcome, true)
		return
	}
	s.mu.Lock()
	s.started[j.start.CallID] = struct{}{}
	s.mu.Unlock()
	outcome := run(ctx, j.start)
	outcome.StartedAt = j.start.StartedAt
	outcome.Duration = s.config.Clock.Since(j.start.StartedAt)
	err := s.spool.finish(j.start.CallID, outcome)
	if err != nil {
		s.config.Logger.Error("outcome could not be stored", "call", j.start.CallID, "error", err)
	}
	s.settle(j, outcome, err == nil)
}

// settle wakes the waiters. A job whose outcome is not on the disk stays in
// memory: this boot knows it, a later one has to call it in doubt.
func (s *Supervisor) settle(j *job, outcome tools.Outcome, stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.outcome = outcome
	if stored {
		delete(s.jobs, j.start.CallID)
	}
	close(j.done)
}

// inspect says what is known of a call id.
func (s *Supervisor) inspect(callID string) (tools.JobState, error) {
	state := tools.JobState{State: tools.JobUnknown, SpoolIntact: s.spool.intact()}
	s.mu.Lock()
	j, ok := s.jobs[callID]
	s.mu.Unlock()
	if ok {
		state.BootID, state.StartedAt = j.start.BootID, j.start.StartedAt
		select {
		case <-j.done:
			outcome := j.outcome
			state.State, state.Outcome = tools.JobFinished, &outcome
		default:
			state.State, state.OutputTail = tools.JobRunning, s.spool.tail(callID)
		}
		return state, nil
	}
	start, stored, known, err := s.spool.lookup(callID)
	if err != nil {
		return tools.JobState{}, err
	}
	if !known {
		s.mu.Lock()
		_, started := s.started[callID]
		s.mu.Unlock()
		state.SpoolIntact = state.SpoolIntact && !started // its record was removed
		return state, nil
	}
	state.BootID, state.StartedAt, state.Outcome = start.BootID, start.StartedAt, stored
	state.State = tools.JobFinished
	if stored == nil {
		state.State, state.OutputTail = tools.JobDead, s.spool.tail(callID)
	}
	return state, nil
}

func (s *Supervisor) commandStarted() {
	s.mu.Lock()
	s.commands++
	s.mu.Unlock()
}

func (s *Supervisor) commandEnded() {
	s.mu.Lock()
	s.commands--
	s.mu.Unlock()
}

func (s *Supervisor) runningCommands() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands
}

// same reports whether a request repeats the call that was started.
func (r startRecord) same(other request) bool {
	return r.Tool == other.tool && r.ArgsSHA256 == other.argsSHA256
}

func refusal(kind tools.ErrorKind, format string, args ...any) *tools.Outcome {
	outcome := tools.Refusal(kind, fmt.Sprintf(format, args...))
	return &outcome
}

func foreign(start startRecord) *tools.Outcome {
	return refusal(tools.KindDenied, "The call was not executed: its id %s belongs to another call of %s, started at %s.",
		start.CallID, start.Tool, start.StartedAt.Format(time.RFC3339))
}

func inDoubt(start startRecord) *tools.Outcome {
	at := "an unknown time"
	if !start.StartedAt.IsZero() {
		at = start.StartedAt.Format(time.RFC3339)
	}
	return &tools.Outcome{
		Status: tools.InDoubt, ErrorKind: tools.KindInDoubt, StartedAt: start.StartedAt,
		Text: fmt.Sprintf("The call was started at %s and the workspace was restarted; its outcome was not observed. Check the current state before repeating it.", at),
	}
}
