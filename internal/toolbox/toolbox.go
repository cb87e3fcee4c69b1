// Package toolbox is the tool server of a workspace and the supervisor of the
// processes that its tools start. It serves MCP on a unix socket to one
// runner, in the terms of belay.dev/belay/internal/runtime/tools, which is
// the only package of this module it imports.
//
// A call of a tool with effects is a job, keyed by its call id. The supervisor
// spools the job's start before it begins and its outcome when it has ended,
// so that a runner that comes later can learn what became of it, and a second
// start of a known key returns what is stored and never runs again.
//
// Every process of a job is tagged, and none outlives its call.
//
// Commands run as the toolbox's own user: one that means to can alter files of
// the spool, as it can alter the workspace. A spool that is removed is noticed,
// one that is forged is not; outcomes are untrusted text to whoever reads them.
package toolbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"
)

// Defaults of Config.
const (
	defaultMaxOutputBytes = 256 << 20
	defaultMaxSpoolBytes  = 512 << 20
	defaultTermGrace      = 2 * time.Second
)

// Config is what Serve needs to know.
type Config struct {
	// Socket is the path of the unix socket; abstract sockets are refused.
	Socket string
	// Workspace is the directory that the tools work in. It must exist.
	Workspace string
	// Epoch is that of the run. Runners of lower epochs are refused, and so is
	// a workspace that a higher epoch of the same run has used.
	Epoch int64
	// Run identifies the run (its UID), so that epochs of different runs in one
	// workspace are not compared. May be empty.
	Run string
	// AllowShell offers the shell tool, provided that there is a shell.
	AllowShell bool
	// Env is added to the environment of commands: KEY=VALUE, or KEY alone for
	// the process's own variable of that name, if it has one. Nothing else is
	// inherited but PATH.
	Env []string
	// MaxProcesses is the RLIMIT_NPROC of commands; 0 leaves it alone. It counts
	// all processes of the user, so it is for a user of its own only. The
	// program must implement the subcommand of LimitedCommand.
	MaxProcesses int
	// ClientUID is the only user that may connect besides this process's own;
	// negative means any.
	ClientUID int
	// MaxOutputBytes is how much of one command's output is spooled (256 MiB);
	// the rest is counted and dropped, except for its end.
	MaxOutputBytes int64
	// MaxSpoolBytes is how much output of finished calls the spool keeps in all
	// (512 MiB); the oldest is dropped first. Starts and outcomes are kept.
	MaxSpoolBytes int64
	// TermGrace is the time between SIGTERM and SIGKILL at a call's time limit (2 s).
	TermGrace time.Duration
	// Logger may be nil.
	Logger *slog.Logger
	// Clock may be nil.
	Clock clock.WithTicker
}

func (c *Config) complete() error {
	if c.Epoch < 1 {
		return fmt.Errorf("epoch %d: epochs count from 1", c.Epoch)
	}
	info, err := os.Stat(c.Workspace)
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("workspace %s is not a directory", c.Workspace)
	}
	if c.Workspace, err = filepath.Abs(c.Workspace); err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	if c.Workspace, err = filepath.EvalSymlinks(c.Workspace); err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	if c.MaxOutputBytes == 0 {
		c.MaxOutputBytes = defaultMaxOutputBytes
	}
	if c.MaxSpoolBytes == 0 {
		c.MaxSpoolBytes = defaultMaxSpoolBytes
	}
	if c.TermGrace == 0 {
		c.TermGrace = defaultTermGrace
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return nil
}

// Serve runs the toolbox until ctx is done, then ends all jobs and returns
// nil. It makes the calling process the reaper of every orphan among its
// descendants, so the process must start no children of its own.
func Serve(ctx context.Context, config Config) (err error) {
	if err := config.complete(); err != nil {
		return fmt.Errorf("toolbox: %w", err)
	}
	supervisor, err := startSupervisor(config)
	if err != nil {
		return fmt.Errorf("toolbox: %w", err)
	}
	defer func() { err = errors.Join(err, supervisor.stop()) }()

	root, err := os.OpenRoot(config.Workspace)
	if err != nil {
		return fmt.Errorf("toolbox: opening the workspace: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()

	server, err := newServer(config, supervisor, root)
	if err != nil {
		return fmt.Errorf("toolbox: %w", err)
	}
	listener, err := listen(config.Socket)
	if err != nil {
		return fmt.Errorf("toolbox: %w", err)
	}
	config.Logger.Info("toolbox is ready", "socket", config.Socket, "workspace", config.Workspace,
		"bootID", supervisor.bootID, "epoch", config.Epoch)
	return server.serve(ctx, listener)
}
