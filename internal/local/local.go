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

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/provider"
	"belay.dev/belay/internal/runtime/provider/anthropic"
	"belay.dev/belay/internal/runtime/provider/openaichat"
	"belay.dev/belay/internal/runtime/tools"
	"belay.dev/belay/internal/version"
)

// Options say what to run and where.
type Options struct {
	// Files are manifests: files, folders or "-".
	Files []string
	// Run names the AgentRun when the files have several, as NAME or NAMESPACE/NAME.
	Run string
	// Credentials are of the form name/key=ENVVAR and win over Secret documents.
	Credentials []string
	// DataDir holds the ledgers, at <DataDir>/<namespace>/<name>.
	DataDir string
	// Workspace is the directory that tools work in; it is made if it does not exist.
	Workspace string
	// AllowShell offers the shell tool.
	AllowShell bool
	// Fresh starts over: the old ledger is kept under another name.
	Fresh bool
	// BallastBytes is the size of the file that keeps room for the last records on a full disk; 0 reserves none.
	BallastBytes int64
	// Stdin is read for the file "-".
	Stdin io.Reader
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
	// Text is the run's answer without known secrets, empty unless the run has finished.
	Text string
	// Dir is the ledger's directory.
	Dir string
}

// Run carries the run on until it ends, parks or is asked to stop by the end of ctx. Its error is an *InputError, one of
// package ledger, or wraps why the workspace could not be prepared.
func Run(ctx context.Context, o Options) (Result, error) {
	j, err := load(o)
	if err != nil {
		return Result{}, &InputError{err}
	}
	if o.Fresh {
		if err := setAside(j.dir, o.Clock.Now()); err != nil {
			return Result{}, err
		}
	}
	hideMemory()
	end, err := j.execute(ctx, o)
	if err != nil {
		return Result{}, err
	}
	out := Result{End: end, Dir: j.dir}
	if end.Finished != nil {
		out.Text = j.redactor.String(end.Finished.Text)
	}
	return out, nil
}

// execute opens the ledger, starts the workspace and runs the loop.
func (j *job) execute(ctx context.Context, o Options) (end loop.End, err error) {
	uid, err := j.identity()
	if err != nil {
		return loop.End{}, err
	}
	book, found, err := ledger.Open(ledger.Options{
		Dir: j.dir, RunUID: uid, Now: o.Clock.Now, Redact: j.redactor.Bytes, BallastBytes: o.BallastBytes, KnownCritical: record.Known,
	})
	if err != nil {
		if unwritable := (*ledger.UnwritableError)(nil); errors.As(err, &unwritable) {
			err = &InputError{fmt.Errorf("--data-dir %s: %w", o.DataDir, err)}
		}
		return loop.End{}, err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	progress := newNarrator(o.Progress, j)
	progress.opened(found)

	var ws *workspace
	defer func() {
		if ws == nil {
			return
		}
		if err := ws.stop(); err != nil { // what the run came to is in the ledger already
			progress.line("workspace: %v", err)
		}
	}()
	open := func(ctx context.Context) (loop.Workspace, []tools.Tool, error) {
		if err := j.setup(ctx, uid, progress); err != nil {
			return nil, nil, err
		}
		started, err := startWorkspace(ctx, o, j.workspace, uid, book.Epoch())
		if err != nil {
			return nil, nil, err
		}
		ws = started
		return ws.client, ws.tools, nil
	}
	client := provider.NewClient(provider.Options{UserAgent: "belay/" + version.String()}, openaichat.Dialect{}, anthropic.Dialect{})
	defer client.Close()
	end, err = loop.Run(ctx, loop.Config{
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
	})
	if err == nil {
		progress.closed(end)
	}
	return end, err
}

// identity is the UID that the ledger was started with, or a new one. It refuses a ledger that was started for another
// contract, also one whose run has ended: its answer is none to this file.
func (j *job) identity() (string, error) {
	for e, err := range ledger.Replay(nil, j.dir) {
		if err != nil {
			return "", err
		}
		payload, err := record.Decode(e.Type, e.Data, func(b record.Blob) ([]byte, error) {
			return ledger.ReadBlob(nil, j.dir, ledger.BlobRef(b))
		})
		if err != nil {
			return "", fmt.Errorf("record %d of %s: %w", e.Seq, j.dir, err)
		}
		if start, ok := payload.(*record.RunStart); ok {
			return start.RunUID, j.unchanged(start)
		}
	}
	uid, err := ledger.RunUID(nil, j.dir)
	if uid == "" && err == nil {
		uid = string(uuid.NewUUID())
	}
	return uid, err
}

// unchanged compares the files with what the run was started for.
func (j *job) unchanged(start *record.RunStart) error {
	what := ""
	switch {
	case start.ContractSHA256 != j.contract.SHA256():
		what = "its task, system prompt, tools or routing"
	case start.Ladder.Name != j.run.Spec.LadderRef.Name:
		what = "its ladderRef"
	default:
		return nil
	}
	return &InputError{fmt.Errorf("AgentRun %s was changed: the ledger in %s was started with another version of %s; "+
		"undo the change to go on with the run, or start over with --fresh, which keeps the old ledger under another name", j.title(), j.dir, what)}
}
