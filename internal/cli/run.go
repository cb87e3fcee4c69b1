package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"belay.dev/belay/internal/local"
	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/loop"
	"belay.dev/belay/internal/runtime/tools"
)

func newRun() *cobra.Command {
	options := local.Options{Clock: clock.RealClock{}}
	command := &cobra.Command{
		Use:   "run -f FILE...",
		Short: "Run an AgentRun without a cluster, or go on with it",
		Long: `run carries an AgentRun on until it ends, parks or is interrupted. The files hold the AgentRun, its RouteLadder, and the
Secrets and ConfigMaps that they refer to. The ledger is kept in DATA-DIR/NAMESPACE/NAME; the same command goes on where
the last one stopped, also after a crash. What happens is told on stderr; the run's answer is printed on stdout.

This is no sandbox: commands of the model and setup steps run as you, with an environment that has nothing of yours but
PATH, LANG, TERM and TMPDIR. The model gets a shell only with --allow-shell.

An interrupt suspends the run; a second one ends belay at once, which a later invocation takes as a crash.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find the belay program itself: %w", err)
			}
			options.Program = program
			options.Stdin = command.InOrStdin()
			options.Progress = command.ErrOrStderr()
			return run(command.Context(), options, command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringArrayVarP(&options.Files, "filename", "f", nil, "manifest: a file, a folder, or - for stdin; repeatable")
	flags.StringVar(&options.Run, "run", "", "the AgentRun to run, if the files have several: NAME or NAMESPACE/NAME")
	flags.StringArrayVar(&options.Credentials, "credential", nil, "name/key=ENVVAR: take a key of a Secret from the environment; repeatable")
	flags.StringVar(&options.DataDir, "data-dir", defaultDataDir(), "directory of the ledgers, best outside the workspace")
	flags.StringVar(&options.Workspace, "workspace", ".", "directory that the tools work in")
	flags.BoolVar(&options.AllowShell, "allow-shell", false, "offer the shell tool: the model's commands run as you")
	flags.BoolVar(&options.Fresh, "fresh", false, "start over; the old ledger is kept under another name")
	flags.Int64Var(&options.BallastBytes, "ballast-bytes", ledger.DefaultBallastBytes, "space reserved for the last records on a full disk; 0 reserves none")
	_ = command.MarkFlagRequired("filename") // fails only for an unknown flag
	return command
}

// run carries a run on, prints its answer, and turns its end into an exit code.
func run(ctx context.Context, options local.Options, stdout io.Writer) error {
	ctx, cancel := loop.WithShutdown(ctx)
	defer cancel()
	result, err := local.Run(ctx, options)
	if err != nil {
		code := codeOf(err)
		if code == CodeRetryable && errors.Is(context.Cause(ctx), loop.ErrShutdown) {
			code = CodeSuspended
		}
		return &exit{code: code, err: err}
	}
	local.Usage(options.Progress, &result.State.Account)
	fmt.Fprintf(options.Progress, "ledger: %s\n", result.Dir)
	switch {
	case result.Finished != nil:
		if result.Text != "" {
			if _, err := fmt.Fprintln(stdout, result.Text); err != nil {
				return &exit{code: CodeRetryable, err: fmt.Errorf("print the answer: %w; the same command prints it again", err)}
			}
		}
		return ended(result.Finished)
	case result.Parked != nil:
		return &exit{code: CodeParked}
	default:
		return &exit{code: CodeSuspended}
	}
}

func ended(end *record.RunEnd) error {
	switch end.Reason {
	case string(loop.Completed):
		return nil
	case string(loop.OutcomeUnknown):
		return &exit{code: CodeOutcomeUnknown}
	default:
		return &exit{code: CodeEnded}
	}
}

// codeOf is the exit code of a run that could not go on, or of a ledger that could not be read.
func codeOf(err error) Code {
	var (
		input     *local.InputError
		contract  *loop.ContractError
		corrupt   *ledger.CorruptError
		regressed *ledger.RegressedError
		unknown   *ledger.UnknownCriticalError
		blob      *ledger.BlobError
		decode    *record.DecodeError
	)
	switch {
	case errors.As(err, &input), errors.As(err, &contract):
		return CodeUsage
	case errors.As(err, &corrupt), errors.As(err, &regressed), errors.As(err, &unknown), errors.As(err, &blob), errors.As(err, &decode),
		errors.Is(err, ledger.ErrNewerVersion), errors.Is(err, ledger.ErrForeignRun):
		return CodeLedgerDamaged
	case errors.Is(err, ledger.ErrLocked), errors.Is(err, ledger.ErrFenced), errors.Is(err, tools.ErrFenced):
		return CodeFenced
	}
	return CodeRetryable
}

// defaultDataDir is where the user's programs keep their state, outside of any workspace (XDG Base Directory
// Specification); without a home directory it is the working directory.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "belay")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "belay")
	}
	return ".belay"
}
