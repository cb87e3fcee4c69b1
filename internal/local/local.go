// Package local runs one AgentRun without a cluster: the same contract, loop, legs and ledger as in a pod, with a
// directory as workspace and a child process as its tool server. It is no sandbox: what the model's commands can reach is
// what the user can reach.
//
// It may import the manifest and contract packages, the runtime and its adapters.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/contract"
	"belay.dev/belay/internal/manifest"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/openaichat"
	"belay.dev/belay/internal/runtime/redact"
	"belay.dev/belay/internal/runtime/tools"
	"belay.dev/belay/internal/version"
)

// Options say what to run and where.
type Options struct {
	// Files are manifests: files, folders or "-".
	Files []string
	// Run names the AgentRun when the files have several.
	Run string
	// Credentials are of the form name/key=ENVVAR and win over Secret documents.
	Credentials []string
	// DataDir holds the ledgers, at <DataDir>/<namespace>/<name>.
	DataDir string
	// Workspace is the directory that tools work in.
	Workspace string
	// AllowShell offers the shell tool.
	AllowShell bool
	// Fresh starts over: the old ledger is kept under another name.
	Fresh bool
	// BallastBytes is the size of the file that keeps room for the last records on a full disk.
	BallastBytes int64
	Stdin        io.Reader
	// Progress is told what happens, a line each.
	Progress io.Writer
	// Program is the belay program itself, which the workspace's tool server is started from.
	Program string
	Clock   clock.Clock
}

// InputError is a mistake in flags, files or directories. Nothing was started.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// Result is how an invocation ended.
type Result struct {
	loop.End
	// Dir is the ledger's directory.
	Dir string
	// Title is namespace and name of the run.
	Title string
}

// Run carries the run on until it ends, parks or is asked to stop by the end of ctx.
func Run(ctx context.Context, o Options) (Result, error) {
	job, err := load(o)
	if err != nil {
		return Result{}, &InputError{err}
	}
	out := Result{Dir: job.dir, Title: job.run.Namespace + "/" + job.run.Name}
	if o.Fresh {
		if err := setAside(job.dir, o.Clock.Now()); err != nil {
			return out, &InputError{err}
		}
	}
	hideMemory()
	out.End, err = job.execute(ctx, o)
	return out, err
}

// job is the input of a run, read and checked.
type job struct {
	run      v1alpha1.AgentRun
	ladder   v1alpha1.RouteLadder
	secrets  secrets
	contract record.Contract
	redactor *redact.Redactor
	dir      string
}

func load(o Options) (*job, error) {
	env, err := parseCredentials(o.Credentials)
	if err != nil {
		return nil, err
	}
	set, err := manifest.Load(o.Files, o.Stdin)
	if err != nil {
		return nil, err
	}
	run, err := choose(set, o.Run)
	if err != nil {
		return nil, err
	}
	title := run.Namespace + "/" + run.Name
	j := &job{run: run, secrets: secrets{namespace: run.Namespace, files: set.Secrets, env: env}}
	found := false
	for _, l := range set.Ladders {
		if l.Namespace == run.Namespace && l.Name == run.Spec.LadderRef.Name {
			j.ladder, found = l, true
		}
	}
	if !found {
		return nil, fmt.Errorf("AgentRun %s: spec.ladderRef.name: the files have no RouteLadder %s/%s", title, run.Namespace, run.Spec.LadderRef.Name)
	}
	if j.contract, err = contract.Of(&run, configMaps{set: set, namespace: run.Namespace}); err != nil {
		return nil, fmt.Errorf("AgentRun %s: %w", title, err)
	}
	j.redactor = redact.New(j.secrets.values()...)
	if j.dir, err = filepath.Abs(filepath.Join(o.DataDir, run.Namespace, run.Name)); err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(j.dir), 0o700); err != nil {
		return nil, fmt.Errorf("--data-dir %s cannot be written: %w", o.DataDir, err)
	}
	return j, nil
}

func choose(set manifest.Set, name string) (v1alpha1.AgentRun, error) {
	var names []string
	for _, r := range set.Runs {
		if name == r.Name || name == "" && len(set.Runs) == 1 {
			return r, nil
		}
		names = append(names, r.Name)
	}
	switch {
	case len(names) == 0:
		return v1alpha1.AgentRun{}, errors.New("the files have no AgentRun")
	case name == "":
		return v1alpha1.AgentRun{}, fmt.Errorf("the files have %d AgentRuns; name one with --run: %v", len(names), names)
	default:
		return v1alpha1.AgentRun{}, fmt.Errorf("--run %q: the files have no AgentRun of that name, but %v", name, names)
	}
}

type configMaps struct {
	set       manifest.Set
	namespace string
}

func (c configMaps) ConfigMapKey(name, key string) (string, error) {
	for _, m := range c.set.ConfigMaps {
		if m.Namespace == c.namespace && m.Name == name {
			if v, ok := m.Data[key]; ok {
				return v, nil
			}
			return "", errors.New("the ConfigMap has no such key")
		}
	}
	return "", errors.New("the files have no such ConfigMap")
}

// setAside renames a ledger, so that a new one can be started and nothing is lost.
func setAside(dir string, now time.Time) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	kept := dir + ".before-" + now.UTC().Format("20060102T150405Z")
	if err := os.Rename(dir, kept); err != nil {
		return fmt.Errorf("--fresh: keep the old ledger as %s: %w", kept, err)
	}
	return nil
}

// execute opens the ledger, starts the workspace and runs the loop.
func (j *job) execute(ctx context.Context, o Options) (end loop.End, err error) {
	uid, err := runUID(j.dir)
	if err != nil {
		return loop.End{}, err
	}
	book, found, err := ledger.Open(ledger.Options{
		Dir: j.dir, RunUID: uid, Now: o.Clock.Now, Redact: j.redactor.Bytes, BallastBytes: o.BallastBytes, KnownCritical: record.Known,
	})
	if err != nil {
		return loop.End{}, err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	progress := newNarrator(o.Progress, j.ladder.Spec.Legs, j.redactor)
	progress.opened(j, found)

	var ws *workspace
	defer func() {
		if ws != nil {
			err = errors.Join(err, ws.stop())
		}
	}()
	open := func(ctx context.Context) (loop.Workspace, []tools.Tool, error) {
		if err := os.MkdirAll(o.Workspace, 0o755); err != nil {
			return nil, nil, &InputError{fmt.Errorf("--workspace: %w", err)}
		}
		if err := j.setup(ctx, o, progress); err != nil {
			return nil, nil, err
		}
		started, err := startWorkspace(ctx, o, uid, book.Epoch())
		if err != nil {
			return nil, nil, err
		}
		ws = started
		return ws.client, ws.tools, nil
	}
	client := provider.NewClient(provider.Options{UserAgent: "belay/" + version.String()}, openaichat.Dialect{})
	defer client.Close()
	return loop.Run(ctx, loop.Config{
		Identity: loop.Identity{RunUID: uid, Namespace: j.run.Namespace, Name: j.run.Name, Version: version.String()},
		Contract: j.contract,
		Limits:   j.contract.Limits,
		Ledger:   book,
		Entries:  ledger.Replay(nil, j.dir),
		Ladders:  j,
		Models:   client,
		Open:     open,
		Clock:    o.Clock,
		Random:   rand.Float64,
		Observe:  progress.observe,
		Redact:   j.redactor.String,
	})
}

// runUID is the UID that the ledger was started with, or a new one.
func runUID(dir string) (string, error) {
	for e, err := range ledger.Replay(nil, dir) {
		if err != nil {
			return "", err
		}
		payload, err := record.Decode(e.Type, e.Data, func(b record.Blob) ([]byte, error) {
			return ledger.ReadBlob(nil, dir, ledger.BlobRef(b))
		})
		if err != nil {
			return "", err
		}
		if start, ok := payload.(*record.RunStart); ok {
			return start.RunUID, nil
		}
	}
	return string(uuid.NewUUID()), nil
}

// Current returns the ladder of the files; it does not change while the command runs.
func (j *job) Current(context.Context) (loop.Ladder, error) {
	l, targets := contract.LadderOf(&j.ladder, j.secrets)
	return loop.Ladder{Ladder: l, Targets: targets}, nil
}
