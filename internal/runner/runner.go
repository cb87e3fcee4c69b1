// Package runner is the cluster side of a run: it proves that its pod is the run's present one, opens the ledger, watches
// the ladder and the health of the routes, lets the loop work, and reports into the block status.runner of its AgentRun
// and nowhere else.
//
// It may import the API types, the contract, the runtime and its adapters, and controller-runtime's client and cache.
package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/anthropic"
	"belay.dev/belay/internal/runtime/provider/openaichat"
	"belay.dev/belay/internal/runtime/tools"
	"belay.dev/belay/internal/version"
)

const (
	// identifyWithin is how long the runner looks for the API server when it starts.
	identifyWithin = 2 * time.Minute
	// ladderWithin is how long it waits for an accepted ladder before it parks the run.
	ladderWithin = 30 * time.Second
	// ladderPark is how long a run without a usable ladder is parked before it looks again.
	ladderPark = time.Minute
	// workspaceWithin is how long the workspace's tool server may take; the kubelet starts it before the runner.
	workspaceWithin = 30 * time.Second
	workspacePoll   = 100 * time.Millisecond
)

// ErrNotOurs says that the run's present pod is another one. This pod must touch nothing.
var ErrNotOurs = errors.New("this pod is not the run's present pod")

// Runner carries one epoch of one run.
type Runner struct {
	cfg    Config
	clock  clock.Clock
	log    *slog.Logger
	client client.Client
	scheme *runtime.Scheme
}

// New returns a runner for the pod that cfg describes.
func New(cfg Config, clk clock.Clock, log *slog.Logger) (*Runner, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register the API types: %w", err)
	}
	c, err := client.New(cfg.API, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("reach the API server at %s: %w", cfg.API.Host, err)
	}
	return &Runner{cfg: cfg, clock: clk, log: log, client: c, scheme: scheme}, nil
}

// Run carries the run on until it ends, parks, or ctx ends. It returns nil for every end that was reported, or that the
// next epoch will find in the ledger; an error makes the pod fail, and the manager start another one.
func (r *Runner) Run(ctx context.Context) error {
	run, err := r.identify(ctx)
	if err != nil {
		return err
	}
	secrets, err := newCredentials(r.cfg.CredentialsDir)
	if err != nil {
		return err
	}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	live, stopped, err := watch(watching, r.cfg, run.Spec.LadderRef.Name, r.scheme, secrets)
	if err != nil {
		return err
	}
	defer func() {
		stopWatching()
		if err := <-stopped; err != nil && ctx.Err() == nil {
			r.log.Warn("watching ended with an error", "error", err)
		}
	}()
	reporting, stopReporting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReporting()
	reporter := newReporter(r.cfg, r.client, r.clock, r.log, rand.Float64, live.threshold)
	go reporter.run(reporting)

	final, err := r.carry(ctx, &epoch{run: run, live: live, secrets: secrets, reporter: reporter})
	if err != nil && ctx.Err() != nil { // asked to stop before there was anything to write down
		r.log.Info("stopped while starting", "error", err)
		final, err = interrupted(), nil
	}
	stopReporting()
	if err != nil {
		<-reporter.done
		return err
	}
	r.log.Info("the epoch ends", "outcome", final.Outcome, "reason", final.Reason, "message", final.Message)
	return errors.Join(reporter.finish(context.WithoutCancel(ctx), final), r.lastWords(final))
}

// identify reads the AgentRun and checks that this pod is its present one.
func (r *Runner) identify(ctx context.Context) (*v1alpha1.AgentRun, error) {
	ctx, cancel := context.WithTimeout(ctx, identifyWithin)
	defer cancel()
	key := client.ObjectKey{Namespace: r.cfg.Namespace, Name: r.cfg.Run}
	for {
		var run v1alpha1.AgentRun
		err := r.client.Get(ctx, key, &run)
		if err == nil {
			return &run, r.isOurs(&run)
		}
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read AgentRun %s: %w", key, err)
		}
		// A new namespace's role binding takes a moment to reach every API server, so a refusal is tried again as well.
		r.log.Warn("the AgentRun cannot be read; it is tried again", "error", err)
		timer := r.clock.NewTimer(retryEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("read AgentRun %s: %w", key, err)
		case <-timer.C():
		}
	}
}

func (r *Runner) isOurs(run *v1alpha1.AgentRun) error {
	s := run.Status
	if string(run.UID) != r.cfg.RunUID || s.PodName != r.cfg.PodName || s.Epoch != r.cfg.Epoch || s.PodUID != "" && s.PodUID != r.cfg.PodUID {
		return fmt.Errorf("AgentRun %s/%s: %w: it names pod %s (epoch %d), this is %s (epoch %d)",
			r.cfg.Namespace, r.cfg.Run, ErrNotOurs, s.PodName, s.Epoch, r.cfg.PodName, r.cfg.Epoch)
	}
	return nil
}

// epoch is what one epoch works with.
type epoch struct {
	run      *v1alpha1.AgentRun
	live     *live
	secrets  *credentials
	reporter *reporter
	contract record.Contract
	ledger   *ledger.Ledger
	// dir is the ledger's directory.
	dir string
}

// carry opens the ledger and lets the loop work. Its error is for what another pod may do better; everything else is an
// end to be reported.
func (r *Runner) carry(ctx context.Context, e *epoch) (v1alpha1.Final, error) {
	limit := r.clock.NewTimer(ladderWithin)
	defer limit.Stop()
	if err := e.live.acceptedWithin(ctx, limit.C()); err != nil {
		if errors.Is(err, errLadderUnusable) {
			return r.parkOnLadder(e.reporter, err), nil
		}
		return v1alpha1.Final{}, err
	}
	var err error
	if e.contract, err = contract.Of(e.run, textsOf(r.cfg.TextsDir, &e.run.Spec)); err != nil {
		return v1alpha1.Final{}, err
	}
	e.dir = filepath.Join(r.cfg.LedgerDir, r.cfg.RunUID)
	book, found, err := ledger.Open(ledger.Options{
		Dir: e.dir, RunUID: r.cfg.RunUID, Epoch: uint64(r.cfg.Epoch), PodUID: r.cfg.PodUID, Now: r.clock.Now,
		Redact: e.secrets.redactBytes, BallastBytes: r.cfg.BallastBytes, PinnedHead: pinned(e.run), KnownCritical: record.Known,
	})
	if err != nil {
		return ledgerFailure(err)
	}
	r.tell(found)
	e.ledger = book
	final, err := r.loop(ctx, e)
	if err != nil {
		final, err = ledgerFailure(err)
	}
	if closed := book.Close(); err == nil && closed != nil {
		return ledgerFailure(closed)
	}
	return final, err
}

func (r *Runner) loop(ctx context.Context, e *epoch) (v1alpha1.Final, error) {
	models := provider.NewClient(provider.Options{UserAgent: "belay/" + version.String()}, openaichat.Dialect{}, anthropic.Dialect{})
	defer models.Close()
	var workspace *tools.Client
	defer func() {
		if workspace != nil {
			_ = workspace.Close() // the loop is done with it
		}
	}()
	ctx, cancel := loop.WithShutdown(ctx)
	defer cancel()
	end, err := loop.Run(ctx, loop.Config{
		Identity: loop.Identity{
			RunUID: r.cfg.RunUID, Namespace: r.cfg.Namespace, Name: r.cfg.Run,
			PodName: r.cfg.PodName, PodUID: r.cfg.PodUID, Version: version.String(),
		},
		Contract: e.contract, Limits: contract.LimitsOf(e.run), Ledger: e.ledger, Entries: ledger.Replay(nil, e.dir),
		Ladders: e.live, Models: models, Health: e.live, Clock: r.clock, Random: rand.Float64,
		Report: e.reporter.report,
		Open: func(ctx context.Context) (loop.Workspace, []tools.Tool, error) {
			client, offered, err := r.dial(ctx)
			workspace = client
			return client, offered, err
		},
	})
	if err != nil {
		return v1alpha1.Final{}, err
	}
	if end.Parked != nil {
		e.reporter.waiting(end.Parked)
	}
	if end.Finished != nil && end.Finished.Text != "" {
		clean := *end.Finished
		clean.Text = e.secrets.redact(clean.Text)
		end.Finished = &clean
		if err := writeResult(filepath.Join(e.dir, resultPath), clean.Text); err != nil {
			return v1alpha1.Final{}, err
		}
	}
	return finalOf(end), nil
}

// dial says hello to the workspace's tool server.
func (r *Runner) dial(ctx context.Context) (*tools.Client, []tools.Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, workspaceWithin)
	defer cancel()
	for {
		client, err := tools.Dial(ctx, r.cfg.Socket, r.cfg.Epoch)
		if err == nil {
			offered, err := client.Tools(ctx)
			return client, offered, err
		}
		if errors.Is(err, tools.ErrFenced) {
			return nil, nil, err
		}
		timer := r.clock.NewTimer(workspacePoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, fmt.Errorf("the workspace's tool server at %s does not answer: %w", r.cfg.Socket, err)
		case <-timer.C():
		}
	}
}

// parkOnLadder gives the pod back until the ladder may have been mended.
func (r *Runner) parkOnLadder(reporter *reporter, err error) v1alpha1.Final {
	reporter.waitingFor(v1alpha1.Wake{Reason: v1alpha1.ReasonLadderUnusable, Until: microTime(r.clock.Now().Add(ladderPark))})
	return v1alpha1.Final{Outcome: v1alpha1.FinalParked, Reason: v1alpha1.ReasonLadderUnusable, Message: tools.HeadText([]byte(err.Error()), maxMessage)}
}

func (r *Runner) tell(found *ledger.Recovered) {
	for _, t := range found.Torn {
		r.log.Warn("the ledger's last record was torn by a crash and is kept aside", "segment", t.Segment, "offset", t.Offset, "bytes", t.Size, "saved", t.Saved)
	}
	for _, f := range found.Fenced {
		r.log.Warn("a record of an older epoch came too late and is ignored", "seq", f.Seq, "epoch", f.Epoch, "type", f.Type)
	}
	if found.Unlocked {
		r.log.Warn("the ledger's file system has no locks; only the epoch guards against a second writer")
	}
	r.log.Info("ledger opened", "fresh", found.Fresh, "records", found.Records, "newestEpoch", found.NewestEpoch)
}

// lastWords repeats the end in the pod's termination message, for whoever looks at the pod.
func (r *Runner) lastWords(final v1alpha1.Final) error {
	words := map[string]any{"outcome": final.Outcome, "reason": final.Reason, "epoch": r.cfg.Epoch}
	if final.Head != nil {
		words["head"] = final.Head
	}
	data, err := json.Marshal(words)
	if err != nil {
		return fmt.Errorf("encode the termination message: %w", err)
	}
	if err := os.WriteFile(r.cfg.TerminationLog, data, 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.log.Warn("the termination message could not be written", "error", err)
	}
	return nil
}

// pinned is the newest ledger head that an epoch of the run reported.
func pinned(run *v1alpha1.AgentRun) *ledger.Head {
	if run.Status.Runner == nil || run.Status.Runner.Ledger == nil {
		return nil
	}
	h := run.Status.Runner.Ledger
	return &ledger.Head{Seq: uint64(h.Seq), Hash: h.Hash}
}

func textsOf(dir string, spec *v1alpha1.AgentRunSpec) texts {
	t := texts{dir: dir, file: map[[2]string]string{}}
	if from := spec.SystemFrom; from != nil {
		t.file[[2]string{from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key}] = "system"
	}
	if from := spec.TaskFrom; from != nil {
		t.file[[2]string{from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key}] = "task"
	}
	return t
}
