package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"belay.dev/belay/internal/toolbox"
)

// newToolbox is the child process that `belay run` starts for its workspace. It ends when its input does, so that it
// does not outlive a parent that is killed.
func newToolbox() *cobra.Command {
	config := toolbox.Config{ClientUID: -1}
	var scratch string
	command := &cobra.Command{
		Use:    "toolbox",
		Short:  "Serve the tools of a workspace to belay run",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config.Logger = slog.New(slog.NewTextHandler(command.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			ctx, cancel := context.WithCancel(command.Context())
			defer cancel()
			go func() {
				_, _ = io.Copy(io.Discard, command.InOrStdin()) // only its end matters
				cancel()
			}()
			err := toolbox.Serve(ctx, config)
			if scratch != "" { // a parent that was killed cannot remove it
				err = errors.Join(err, os.RemoveAll(scratch))
			}
			return err
		},
	}
	flags := command.Flags()
	flags.StringVar(&config.Socket, "socket", "", "path of the unix socket")
	flags.StringVar(&scratch, "scratch", "", "folder to remove at the end")
	flags.StringVar(&config.Workspace, "workspace", "", "directory that the tools work in")
	flags.Int64Var(&config.Epoch, "epoch", 0, "epoch of the run")
	flags.StringVar(&config.Run, "run", "", "UID of the run")
	flags.BoolVar(&config.AllowShell, "shell", false, "offer the shell tool")
	return command
}

// newLimited is what the toolbox starts its commands through.
func newLimited() *cobra.Command {
	return &cobra.Command{
		Use:                toolbox.LimitedCommand,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(_ *cobra.Command, args []string) error { return toolbox.RunLimited(args) },
	}
}
