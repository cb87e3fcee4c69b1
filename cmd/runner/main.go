// Command runner carries one epoch of an AgentRun. It runs in the pod that the manager makes for the run.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"belay.dev/belay/internal/runner"
	"belay.dev/belay/internal/runtime/ledger"
)

func main() {
	ballast := flag.Int64("ballast-bytes", ledger.DefaultBallastBytes, "space reserved for the last records on a full disk; 0 reserves none")
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *ballast, log); err != nil {
		log.Error("the epoch ended without a report", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, ballast int64, log *slog.Logger) error {
	cfg, err := runner.FromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	cfg.BallastBytes = ballast
	r, err := runner.New(cfg, clock.RealClock{}, log)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}
