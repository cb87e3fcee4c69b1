package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"belay.dev/belay/internal/chaos"
)

// chaosShutdown is how long open requests may take after the command was asked to stop.
const chaosShutdown = 2 * time.Second

func newChaos() *cobra.Command {
	var script string
	options := chaos.Options{}
	command := &cobra.Command{
		Use:   "chaos --script FILE",
		Short: "Play providers that fail as a script says",
		Long: `chaos serves one provider for each leg of the script, at http://ADDRESS/LEG, until it is interrupted. The providers are
strict: they refuse what the real ones refuse. GET /_chaos/requests lists what was asked, GET /_chaos/bill what it would
have cost.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			text, err := os.ReadFile(script)
			if err != nil {
				return usage(fmt.Errorf("read the script: %w", err))
			}
			parsed, err := chaos.ParseScript(text)
			if err != nil {
				return usage(fmt.Errorf("%s: %w", script, err))
			}
			options.Log = slog.New(slog.NewTextHandler(command.ErrOrStderr(), nil))
			server := chaos.NewServer(parsed, options)
			if err := server.Start(); err != nil {
				return usage(err)
			}
			fmt.Fprintf(command.ErrOrStderr(), "chaos: listening on http://%s\n", server.Addr())
			<-command.Context().Done()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(command.Context()), chaosShutdown)
			defer cancel()
			if err := server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return &exit{code: CodeRetryable, err: err}
			}
			return nil
		},
	}
	command.Flags().StringVar(&script, "script", "", "the script, a YAML file")
	command.Flags().StringVar(&options.Addr, "address", chaos.DefaultAddr, "host and port to listen on")
	command.Flags().Uint64Var(&options.Seed, "seed", 0, "makes ids and signatures repeatable; 0 draws them anew")
	_ = command.MarkFlagRequired("script") // fails only for an unknown flag
	return command
}
