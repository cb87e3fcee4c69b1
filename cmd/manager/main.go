// Command manager runs Belay's controllers: agentrun gives runs their pods, routeladder accepts ladders, providerhealth
// keeps the shared circuit breakers. It is stateless; all state is in the API server and on the runs' volumes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/controller/agentrun"
	"belay.dev/belay/internal/controller/providerhealth"
	"belay.dev/belay/internal/controller/routeladder"
	"belay.dev/belay/internal/version"
)

func main() {
	ctx := ctrl.SetupSignalHandler()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "manager",
		Short:         "Run Belay's controllers",
		Version:       version.String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			logger := newLogger(cmd.ErrOrStderr(), &o)
			ctrl.SetLogger(logger)
			klog.SetLogger(logger)
			config, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("finding the API server: %w", err)
			}
			return run(cmd.Context(), config, &o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// run runs the manager until ctx ends or it loses its leadership.
func run(ctx context.Context, config *rest.Config, o *options) error {
	config.QPS, config.Burst = o.kubeAPIQPS, o.kubeAPIBurst
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, o.managerOptions(scheme))
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	wall := clock.RealClock{}
	runs := agentrun.Options{Image: o.image, Bootstrap: agentrun.Bootstrap(o.bootstrap), Workers: o.workers}
	if err := agentrun.SetupWithManager(ctx, mgr, wall, runs); err != nil {
		return fmt.Errorf("setting up the agentrun controller: %w", err)
	}
	if err := routeladder.SetupWithManager(ctx, mgr, wall); err != nil {
		return fmt.Errorf("setting up the routeladder controller: %w", err)
	}
	if err := providerhealth.SetupWithManager(ctx, mgr, wall); err != nil {
		return fmt.Errorf("setting up the providerhealth controller: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return fmt.Errorf("setting up the probes: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controllers: %w", err)
	}
	return nil
}

// newScheme registers what the controllers read and write, and no more.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering the types: %w", err)
	}
	return scheme, nil
}

func newLogger(w io.Writer, o *options) logr.Logger {
	handlerOptions := &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}
	if o.logFormat == logFormatText {
		return logr.FromSlogHandler(slog.NewTextHandler(w, handlerOptions))
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(w, handlerOptions))
}
