// Command demo shows Belay at work on a machine without a cluster: an AgentRun whose primary provider is down, whose pod is
// killed in the middle of a tool call, and which completes all the same. Every line that it prints follows a check, read
// through kubectl, at the providers or in the ledger; what was promised and did not happen makes it fail.
//
// KEEP=1 leaves everything running until it is interrupted. DEMO_BREAK=resume wipes the run's volume after the kill, to
// show that the demo notices.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"belay.dev/belay/internal/chaos"
	"belay.dev/belay/test/cluster"
)

// within bounds the whole demo; most of it is Go's own compilation in the workspace.
const within = 10 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: FAILED: %v\n", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context) (err error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, "config", "samples", "demo-script.yaml"))
	if err != nil {
		return err
	}
	script, err := chaos.ParseScript(text)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "belay-demo-")
	if err != nil {
		return err
	}
	// The pods run as users of their own, who have to get to their files.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	s := &story{out: os.Stdout}
	s.title("A cluster on this machine, in %s", dir)
	c, err := cluster.Start(limited, cluster.Options{Dir: dir, Root: root, Script: script, Progress: s.say})
	defer func() {
		if stopped := c.Stop(); err == nil {
			err = stopped
		}
		if err != nil {
			err = fmt.Errorf("%w (logs and volumes are kept in %s)", err, dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	if err != nil {
		return err
	}
	s.cluster, s.samples = c, filepath.Join(root, "config", "samples", "demo")
	if err := s.tell(limited, os.Getenv("DEMO_BREAK")); err != nil {
		s.evidence(ctx)
		return err
	}
	if os.Getenv("KEEP") != "" {
		s.title("Everything keeps running until Ctrl-C")
		fmt.Fprintf(s.out, "export KUBECONFIG=%s\n", c.Rig.Kubeconfig())
		<-ctx.Done()
	}
	return nil
}
