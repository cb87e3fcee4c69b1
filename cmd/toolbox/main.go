// Command toolbox is the tool server of a workspace. An init container copies
// it into the user's image; there it runs as a sidecar of the runner.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"belay.dev/belay/internal/toolbox"
	"belay.dev/belay/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		var failed *stepFailed
		if errors.As(err, &failed) {
			os.Exit(failed.code)
		}
		os.Exit(1)
	}
}

func root() *cobra.Command {
	command := &cobra.Command{
		Use:           "toolbox",
		Short:         "The tool server of a Belay workspace",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	command.AddCommand(serve(), install(), setup(), printVersion(), limited())
	return command
}

func serve() *cobra.Command {
	config := toolbox.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	command := &cobra.Command{
		Use:   "serve",
		Short: "Serve the workspace's tools on a unix socket until SIGTERM",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return toolbox.Serve(command.Context(), config)
		},
	}
	flags := command.Flags()
	flags.StringVar(&config.Socket, "socket", "/belay/run/toolbox.sock", "path of the unix socket")
	flags.StringVar(&config.Workspace, "workspace", "/workspace", "directory that the tools work in")
	flags.Int64Var(&config.Epoch, "epoch", 0, "epoch of the run; runners of lower epochs are refused")
	flags.StringVar(&config.Run, "run", "", "UID of the run")
	flags.BoolVar(&config.AllowShell, "shell", true, "offer the shell tool if the image has a shell")
	flags.StringArrayVar(&config.Env, "env", nil, "KEY=VALUE, or KEY to pass one on, to add to the environment of commands; repeatable")
	flags.IntVar(&config.MaxProcesses, "max-processes", 0, "RLIMIT_NPROC of commands, for a user of its own only; 0 sets none")
	flags.IntVar(&config.ClientUID, "client-uid", -1, "the only other user that may connect; negative allows any")
	flags.Int64Var(&config.MaxOutputBytes, "max-output-bytes", 0, "how much of one command's output is kept; 0 means 256 MiB")
	flags.Int64Var(&config.MaxSpoolBytes, "max-spool-bytes", 0, "how much output of finished calls is kept in all; 0 means 512 MiB")
	flags.DurationVar(&config.TermGrace, "term-grace", 0, "time between SIGTERM and SIGKILL at a time limit; 0 means 2s")
	_ = command.MarkFlagRequired("epoch") // fails only for an unknown flag
	return command
}

func install() *cobra.Command {
	var dir string
	command := &cobra.Command{
		Use:   "install",
		Short: "Copy this program into a directory",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			path, err := toolbox.Install(dir)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), path)
			return err
		},
	}
	command.Flags().StringVar(&dir, "to", "", "directory to copy to")
	_ = command.MarkFlagRequired("to") // fails only for an unknown flag
	return command
}

// stepFailed carries the exit code of a setup step.
type stepFailed struct {
	code int
	err  error
}

func (f *stepFailed) Error() string { return f.err.Error() }
func (f *stepFailed) Unwrap() error { return f.err }

func setup() *cobra.Command {
	step := toolbox.Setup{Stdout: os.Stdout, Stderr: os.Stderr}
	command := &cobra.Command{
		Use:   "setup --name NAME --marker FILE -- COMMAND [ARGUMENT...]",
		Short: "Run a command that prepares the workspace, unless it has succeeded before",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			step.Command = arguments
			code, err := step.Run(command.Context())
			if err == nil && code != 0 {
				err = fmt.Errorf("setup %s: the command ended with exit code %d", step.Name, code)
			}
			if err != nil {
				return &stepFailed{code: code, err: err}
			}
			return nil
		},
	}
	command.Flags().StringVar(&step.Name, "name", "", "name of the step")
	command.Flags().StringVar(&step.Marker, "marker", "", "file that says that the step has succeeded")
	_ = command.MarkFlagRequired("name")   // fails only for an unknown flag
	_ = command.MarkFlagRequired("marker") // fails only for an unknown flag
	return command
}

func printVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(command.OutOrStdout(), version.String())
			return err
		},
	}
}

// limited is called by the toolbox itself, see toolbox.RunLimited.
func limited() *cobra.Command {
	return &cobra.Command{
		Use:                toolbox.LimitedCommand + " N COMMAND...",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, arguments []string) error { return toolbox.RunLimited(arguments) },
	}
}
