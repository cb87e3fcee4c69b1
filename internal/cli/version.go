package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"belay.dev/belay/internal/version"
)

func newVersion() *cobra.Command {
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
