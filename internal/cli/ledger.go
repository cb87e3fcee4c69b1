package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"belay.dev/belay/internal/runtime/ledger"
	"belay.dev/belay/internal/runtime/ledger/record"
	"belay.dev/belay/internal/runtime/ledger/timeline"
)

// followEvery is how often show --follow looks for new records.
const followEvery = 300 * time.Millisecond

func newLedger() *cobra.Command {
	command := &cobra.Command{
		Use:   "ledger",
		Short: "Read the ledger of a run",
		Long:  "ledger reads the ledger of a run without changing it, also while the run is writing. PATH is its directory or its first file.",
		Args:  cobra.NoArgs,
	}
	command.AddCommand(newLedgerShow(), newLedgerVerify(), newLedgerExport())
	return command
}

// ledgerDir accepts a ledger's directory or a file in it.
func ledgerDir(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", usage(fmt.Errorf("open the ledger: %w", err))
	}
	if !info.IsDir() {
		path = filepath.Dir(path)
	}
	if _, err := os.Stat(filepath.Join(path, "ledger.jsonl")); err != nil {
		return "", usage(fmt.Errorf("there is no ledger in %s: %w", path, err))
	}
	return path, nil
}

// blobs fetches payloads that were too large for their line.
func blobs(dir string) func(record.Blob) ([]byte, error) {
	return func(b record.Blob) ([]byte, error) {
		return ledger.ReadBlob(nil, dir, ledger.BlobRef{SHA256: b.SHA256, Size: b.Size})
	}
}

func newLedgerShow() *cobra.Command {
	var output string
	var follow bool
	command := &cobra.Command{
		Use:   "show PATH",
		Short: "Tell what a run did: turns, legs, waits, fallbacks, calls, cost",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if output != string(timeline.Text) && output != string(timeline.JSON) {
				return usage(fmt.Errorf("--output %q: want text or json", output))
			}
			dir, err := ledgerDir(args[0])
			if err != nil {
				return err
			}
			entries := ledger.Replay(nil, dir)
			if follow {
				ticker := time.NewTicker(followEvery)
				defer ticker.Stop()
				entries = ledger.Follow(command.Context(), nil, dir, ticker.C)
			}
			err = timeline.Write(command.OutOrStdout(), entries, timeline.Options{Format: timeline.Format(output), Blob: blobs(dir)})
			return coded(err)
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "text", "text, or json: an object for each record")
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on with each new record, until interrupted")
	return command
}

func newLedgerExport() *cobra.Command {
	return &cobra.Command{
		Use:   "export PATH",
		Short: "Print the conversation as JSON lines, without credentials",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			dir, err := ledgerDir(args[0])
			if err != nil {
				return err
			}
			return coded(timeline.Export(command.OutOrStdout(), ledger.Replay(nil, dir), timeline.ExportOptions{Blob: blobs(dir)}))
		},
	}
}

// coded gives an error its exit code.
func coded(err error) error {
	if err == nil {
		return nil
	}
	return &exit{code: codeOf(err), err: err}
}

func newLedgerVerify() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "verify PATH",
		Short: "Check every record, the chain between them and every blob",
		Long: `verify checks the checksum of every record, the chain between them, and every blob that a record names. What a crash may
leave behind is a warning, and is repaired when the run goes on; anything else is an error, and makes the exit code 13.`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return usage(fmt.Errorf("--output %q: want text or json", output))
			}
			dir, err := ledgerDir(args[0])
			if err != nil {
				return err
			}
			report := ledger.Verify(nil, dir)
			if err := writeReport(command.OutOrStdout(), report, output); err != nil {
				return coded(fmt.Errorf("print the report: %w", err))
			}
			if !report.OK() {
				return &exit{code: CodeLedgerDamaged}
			}
			return nil
		},
	}
	command.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return command
}

func writeReport(w io.Writer, r ledger.Report, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s: %s, byte %d, record %d: %s\n  %s\n", f.Severity, f.File, f.Offset, f.Seq, f.What, f.Advice)
	}
	verdict := "ok"
	switch {
	case r.Newer:
		verdict = "newer than this belay"
	case !r.OK():
		verdict = "damaged"
	}
	_, err := fmt.Fprintf(w, "%s: %s in %s, %s, %s, epoch %d, head %d %s\n", verdict,
		plural(int64(r.Records), "record"), plural(int64(r.Segments), "segment"), plural(r.Bytes, "byte"), plural(int64(r.Blobs), "blob"),
		r.Epoch, r.Head.Seq, r.Head.Hash)
	return err
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
