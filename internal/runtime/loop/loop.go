// Package loop runs a contract to its end: it asks the legs of a ladder for the next answer, runs the tools that the
// answer calls, and writes everything into the ledger before anyone else can see it. A loop that is started again on the
// same ledger goes on where the last one stopped.
//
// The state of a run is the fold of its records (State); decisions are made by pure packages (ladder, breaker, failure);
// this package orchestrates and declares the interfaces of what it needs. It knows nothing of Kubernetes. It may import
// every package of the runtime but the dialect adapters.
package loop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"k8s.io/utils/clock"

	"belay.dev/belay/internal/runtime/breaker"
	"belay.dev/belay/internal/runtime/budget"
	"belay.dev/belay/internal/runtime/guard"
	"belay.dev/belay/internal/runtime/ladder"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/route"
	"belay.dev/belay/internal/runtime/tools"
)

// ErrShutdown is the cause of a context that ends because the runner is asked to stop: the run is suspended, not ended.
var ErrShutdown = errors.New("the runner was asked to stop")

// Identity is who runs.
type Identity struct {
	RunUID    string
	Namespace string
	Name      string
	PodName   string
	PodUID    string
	// Version is the runtime's version, for the record.
	Version string
}

// Ladder is what a run may use at the moment: the legs with their rules, and for each leg where to send.
type Ladder struct {
	ladder.Ladder
	// Targets are the legs' transport settings by leg name. A leg without one cannot be used.
	Targets map[string]provider.Target
}

// Ladders gives the newest accepted ladder.
type Ladders interface {
	Current(ctx context.Context) (Ladder, error)
}

// Health is what others know about the routes. A nil Health means that there are no others.
type Health interface {
	// Shared returns the newest view of each route.
	Shared() map[route.Name]breaker.Shared
	// Changed is closed when a view changes after the call; every call returns the channel of the next change.
	Changed() <-chan struct{}
}

// Models sends requests to legs.
type Models interface {
	// Prepare renders a request for a leg. An error means that the leg cannot take it, for example for lack of a capability.
	Prepare(target provider.Target, req provider.Request) (provider.Prepared, error)
	// Refused turns an error of Prepare into the attempt that never was.
	Refused(err error) provider.Attempt
	// Do makes one attempt.
	Do(ctx context.Context, target provider.Target, prepared provider.Prepared, try provider.Try) provider.Attempt
}

// Progress is what may be shown to others after a barrier.
type Progress struct {
	State *State
	// Head is durable.
	Head ledger.Head
	// Levels are what the run knows of the routes of its ladder.
	Levels map[route.Name]breaker.Level
	// Waiting is set while the run waits in place.
	Waiting *Waiting
}

// Waiting is a wait of a run that keeps its pod.
type Waiting struct {
	Until  time.Time
	Reason string
	Routes []route.Name
}

// Config is what a run needs.
type Config struct {
	Identity Identity
	// Contract is frozen by the first epoch; a later epoch with another one is refused.
	Contract record.Contract
	// Limits are the limits of this epoch; they may be higher than those of the contract.
	Limits  record.Limits
	Ledger  Ledger
	Entries iter.Seq2[ledger.Entry, error]
	Ladders Ladders
	Models  Models
	// Open connects to the workspace and lists the tools that it offers; those that the contract grants are offered to the
	// model. It is called once, and not at all for a run that has ended. Its owner closes what it opened.
	Open   func(ctx context.Context) (Workspace, []tools.Tool, error)
	Health Health
	Clock  clock.Clock
	// Random returns a number in [0, 1) for jitter.
	Random func() float64
	// Observe is told each record right after it was written; nil for nobody. It must not block.
	Observe func(at time.Time, payload any)
	// Report is called after each barrier; nil for nobody. It must not block.
	Report func(Progress)
}

// End is how an epoch ended. Exactly one of Finished, Parked and Suspended tells how.
type End struct {
	Finished  *record.RunEnd
	Parked    *record.RunPark
	Suspended *record.RunSuspend
	State     *State
	Head      ledger.Head
}

// ContractError refuses a run whose ledger was started with another contract.
type ContractError struct{ Have, Want string }

func (e *ContractError) Error() string {
	return fmt.Sprintf("the ledger was started with another contract (%.12s, now %.12s): task, system prompt, tools or routing were changed; start a new run for a new contract", e.Have, e.Want)
}

type runner struct {
	cfg       Config
	state     *State
	journal   *journal
	breakers  *breaker.Set
	workspace Workspace
	tools     []tools.Tool
	validator tools.Validator
	waiting   *Waiting
}

// Run carries the run on until it ends, parks, is suspended, or cannot go on. The error of a run that cannot go on is
// one of package ledger, a *ContractError, or wraps what the workspace or the ladder failed with; the ledger stays
// valid, and a later epoch may succeed.
func Run(ctx context.Context, cfg Config) (End, error) {
	r, err := resume(cfg)
	if err != nil {
		return End{}, err
	}
	if r.state.End != nil {
		return r.end(), nil
	}
	if err = r.start(ctx); err == nil {
		err = r.run(ctx)
	}
	if err != nil && errors.Is(context.Cause(ctx), ErrShutdown) && r.state.Epoch == r.cfg.Ledger.Epoch() {
		err = r.suspend(suspendedByShutdown)
	}
	if unwritable := (*ledger.UnwritableError)(nil); errors.As(err, &unwritable) {
		r.stopUnwritable()
	}
	if err != nil {
		return End{}, err
	}
	return r.end(), nil
}

// resume folds the ledger into a state.
func resume(cfg Config) (*runner, error) {
	r := &runner{cfg: cfg, state: &State{}}
	r.state.Account.Limits = budget.Limits{
		MaxTurns: cfg.Limits.MaxTurns, MaxTokens: cfg.Limits.MaxTokens, MaxCostMicroUSD: cfg.Limits.MaxCostMicroUSD,
	}
	r.journal = &journal{ledger: cfg.Ledger, state: r.state, observe: cfg.Observe, published: r.report}
	for e, err := range cfg.Entries {
		if err != nil {
			return nil, err
		}
		payload, err := record.Decode(e.Type, e.Data, r.journal.fetch)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", e.Seq, err)
		}
		if err := r.state.Apply(Entry{Seq: e.Seq, Epoch: e.Epoch, At: e.At, Payload: payload}); err != nil {
			return nil, &ledger.CorruptError{Segment: fmt.Sprintf("%d", e.Segment), Offset: e.Offset, Seq: e.Seq, What: err.Error(),
				Advice: "the checksums are right, so a program wrote it: keep the file for a report, and start a new run"}
		}
	}
	return r, nil
}

// start writes what opens an epoch, and settles what the last one left open.
func (r *runner) start(ctx context.Context) error {
	current, err := r.cfg.Ladders.Current(ctx)
	if err != nil {
		return fmt.Errorf("read the ladder: %w", err)
	}
	workspace, offered, err := r.cfg.Open(ctx)
	if err != nil {
		return fmt.Errorf("open the workspace: %w", err)
	}
	r.workspace = workspace
	if !r.state.Started {
		if err := r.journal.write(record.RunStart{
			RunUID: r.cfg.Identity.RunUID, Namespace: r.cfg.Identity.Namespace, Name: r.cfg.Identity.Name,
			Contract: r.cfg.Contract, ContractSHA256: r.cfg.Contract.SHA256(), Ladder: identityOf(current.Ladder),
		}); err != nil {
			return err
		}
	} else if want := r.cfg.Contract.SHA256(); r.state.Hash != want {
		return &ContractError{Have: r.state.Hash, Want: want}
	}
	if err := r.journal.write(record.EpochStart{
		PodName: r.cfg.Identity.PodName, PodUID: r.cfg.Identity.PodUID, Version: r.cfg.Identity.Version,
		BootID: r.workspace.BootID(), ReplayedTurns: r.state.Committed,
	}); err != nil {
		return err
	}
	r.tools = granted(offered, r.state.Contract.Tools)
	r.breakers = breaker.NewSet(current.Breaker)
	r.breakers.Track(current.Routes()...)
	for _, receipt := range r.state.History {
		r.breakers.Replay(receipt.Route, breaker.ResultOf(receipt.Failure), receipt.At)
	}
	if err := r.journal.sync(); err != nil {
		return err
	}
	return r.reconcile(ctx)
}

// granted are the offered tools that the contract allows, all of them when it names none.
func granted(offered []tools.Tool, grants []record.ToolGrant) []tools.Tool {
	if len(grants) == 0 {
		return offered
	}
	var out []tools.Tool
	for _, g := range grants {
		for _, t := range offered {
			if t.Name == g.Name {
				out = append(out, t)
			}
		}
	}
	return out
}

// run is the turn loop: answer the calls of the last turn, judge, ask for the next.
func (r *runner) run(ctx context.Context) error {
	for {
		if len(r.state.Pending) > 0 {
			if err := r.answerCalls(ctx); err != nil {
				return err
			}
		}
		if stopped, err := r.heed(); err != nil || stopped {
			return err
		}
		if end, ok := r.state.verdict(); ok {
			return r.finish(end)
		}
		if end, ok := r.state.exceeded(r.cfg.Limits); ok {
			return r.finish(end)
		}
		if r.state.endsCut() {
			if err := r.journal.write(record.Control{Turn: r.state.Committed, Kind: record.ControlContinue, Text: continueText}); err != nil {
				return err
			}
		}
		stopped, err := r.turn(ctx)
		if err != nil || stopped {
			return err
		}
	}
}

// heed does what the guard asks for after a turn with calls: it ends the run, or tells the model.
func (r *runner) heed() (stopped bool, err error) {
	offered := make([]guard.Tool, len(r.tools))
	for i, t := range r.tools {
		offered[i] = guard.Tool{Name: t.Name, Schema: string(t.InputSchema)}
	}
	decision := r.state.Guard.Decide(offered)
	if stop := decision.Stop; stop != nil {
		if err := r.journal.write(record.Diagnostic{Turn: r.state.Committed, Reason: string(stop.Reason), Text: stop.Message}); err != nil {
			return false, err
		}
		return true, r.finish(record.RunEnd{Turn: r.state.Committed, Reason: string(stop.Reason), Message: stop.Message, Text: stop.Text})
	}
	for _, note := range decision.Notes {
		if err := r.journal.write(record.Control{Turn: r.state.Committed, Kind: string(note.Kind), Text: note.Text}); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (r *runner) finish(end record.RunEnd) error {
	if err := r.journal.write(end); err != nil {
		return err
	}
	return r.journal.sync()
}

// The reasons of run.suspend records.
const (
	suspendedByShutdown = "Shutdown"
	suspendedUnwritable = "LedgerUnwritable"
)

func (r *runner) suspend(reason string) error {
	if err := r.journal.write(record.RunSuspend{Turn: r.state.Turn, Reason: reason}); err != nil {
		return err
	}
	return r.journal.sync()
}

// stopUnwritable leaves word of a full disk where there is still room for it. The error that stopped the run is the one to
// tell; a disk that takes no word at all, as after a failed fsync, adds nothing to it.
func (r *runner) stopUnwritable() {
	if r.cfg.Ledger.FreeBallast() == nil {
		_ = r.suspend(suspendedUnwritable)
	}
}

func (r *runner) end() End {
	e := End{Finished: r.state.End, State: r.state, Head: r.cfg.Ledger.Head()}
	if e.Finished == nil {
		e.Parked = r.state.Parked
	}
	if e.Finished == nil && e.Parked == nil {
		e.Suspended = &record.RunSuspend{Turn: r.state.Turn, Reason: suspendedByShutdown}
	}
	return e
}

func (r *runner) report() {
	if r.cfg.Report == nil || r.breakers == nil {
		return
	}
	levels := map[route.Name]breaker.Level{}
	for _, s := range r.breakers.Snapshot().Routes {
		levels[s.Route] = r.breakers.Level(s.Route)
	}
	r.cfg.Report(Progress{State: r.state, Head: r.cfg.Ledger.Head(), Levels: levels, Waiting: r.waiting})
}

func identityOf(l ladder.Ladder) record.Ladder {
	return record.Ladder{Name: l.Name, UID: l.UID, Generation: l.Generation}
}
