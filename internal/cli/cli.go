// Package cli is the belay command: flags, exit codes, and the text that a person reads. What it runs lives in other
// packages.
//
// It may import every package but the controllers and the manager's.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Code is the exit code of the command. Scripts rely on them; they are listed in the README.
type Code int

const (
	// CodeCompleted is a run that succeeded, and every other command that did what it was asked.
	CodeCompleted Code = 0
	// CodeUsage is a wrong flag, file or directory: nothing was started.
	CodeUsage Code = 1
	// CodeRetryable is a failure of the surroundings; the same command may work later.
	CodeRetryable Code = 10
	// CodeEnded is a run that ended without success.
	CodeEnded Code = 11
	// CodeParked is a run that waits; the same command goes on with it.
	CodeParked Code = 12
	// CodeLedgerDamaged is a ledger that must not be written to.
	CodeLedgerDamaged Code = 13
	// CodeFenced is a ledger that another process owns.
	CodeFenced Code = 14
	// CodeSuspended is a run that was asked to stop; the same command goes on with it.
	CodeSuspended Code = 15
	// CodeOutcomeUnknown is a run that came to an end without evidence that its task is done.
	CodeOutcomeUnknown Code = 17
)

// exit carries a code through an error. A nil err prints nothing more.
type exit struct {
	code Code
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// Main runs the command and returns its exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return int(CodeCompleted)
	}
	var e *exit
	if !errors.As(err, &e) {
		e = &exit{code: CodeUsage, err: err}
	}
	if e.err != nil {
		fmt.Fprintln(stderr, "error:", e.err)
	}
	return int(e.code)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "belay",
		Short: "Run LLM agents that keep going when providers, networks, pods and tools fail",
		Long: `belay runs an AgentRun without a cluster, reads the ledgers of runs, and plays providers that fail as scripted.

Exit codes: 0 completed, 1 usage, 10 retryable, 11 ended without success, 12 parked, 13 ledger damaged,
14 another process owns the ledger, 15 suspended, 17 outcome unknown.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddCommand(newRun(), newLedger(), newChaos(), newVersion(), newToolbox(), newLimited())
	return root
}

func usage(err error) error { return &exit{code: CodeUsage, err: err} }
