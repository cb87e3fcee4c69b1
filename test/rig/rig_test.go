package rig

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"belay.dev/belay/test/poll"
)

// childDir makes this test's program a rig of its own.
const childDir = "RIG_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(runChild(dir))
	}
	os.Exit(m.Run())
}

// runChild is a program that keeps a rig until it is killed.
func runChild(dir string) int {
	if _, err := Start(context.Background(), Config{Dir: dir}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func eventually(t *testing.T, what string, ok func() error) {
	t.Helper()
	poll.Until(t, 30*time.Second, what, ok)
}

// programs counts processes whose command line names a file below dir.
func programs(t *testing.T, dir string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range lines {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), dir+"/") {
			n++
		}
	}
	return n
}

func TestARigIsAWorkingControlPlaneAndStopsWhole(t *testing.T) {
	dir := t.TempDir()
	begin := time.Now()
	r, err := Start(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	t.Logf("started in %v", time.Since(begin))

	api, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("the controllers serve new namespaces and delete them", func(t *testing.T) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "made"}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the namespace has an account and the authority's certificate", func() error {
			if _, err := client.CoreV1().ServiceAccounts("made").Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
				return err
			}
			_, err := client.CoreV1().ConfigMaps("made").Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
			return err
		})
		if err := client.CoreV1().Namespaces().Delete(t.Context(), "made", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the namespace is gone", func() error {
			if _, err := client.CoreV1().Namespaces().Get(t.Context(), "made", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	})
	t.Run("dependents are collected with their owner", func(t *testing.T) {
		owner, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), dependent, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the dependent is gone", func() error {
			if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "dependent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	})
	t.Run("the scheduler says why a pod without a node waits", func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the pod is unschedulable", func() error {
			got, err := client.CoreV1().Pods("default").Get(t.Context(), "waits", metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range got.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
					return nil
				}
			}
			return fmt.Errorf("its conditions are %+v", got.Status.Conditions)
		})
	})
	t.Run("etcd and the API server refuse strangers", func(t *testing.T) {
		stranger := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.pool(), MinVersion: tls.VersionTLS12}}}
		if resp, err := stranger.Get(r.url(r.ports.etcd) + "/v3/kv/range"); err == nil {
			resp.Body.Close()
			t.Errorf("etcd answers a client without a certificate: %s", resp.Status)
		}
		resp, err := stranger.Get(r.url(r.ports.apiserver) + "/api/v1/secrets")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("the API server answers a stranger %s, want 403", resp.Status)
		}
	})

	if n := programs(t, dir); n != 4 {
		t.Errorf("%d programs run, want 4", n)
	}
	r.Stop()
	if n := programs(t, dir); n != 0 {
		t.Errorf("%d programs are left", n)
	}
}

func TestAKilledProgramTakesItsRigAlong(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if line != "ready\n" {
		t.Errorf("the rig said %q, %v", line, err)
	}
	if n := programs(t, dir); n != 4 {
		t.Errorf("%d programs run, want 4", n)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "no program is left", func() error {
		if n := programs(t, dir); n != 0 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

func TestMissingProgramsAreNamedWithTheWayToGetThem(t *testing.T) {
	assets := t.TempDir()
	if err := os.WriteFile(filepath.Join(assets, "etcd"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Start(t.Context(), Config{Dir: t.TempDir(), Assets: assets})
	if err == nil || !strings.Contains(err.Error(), "lacks the programs kube-apiserver, kube-controller-manager, kube-scheduler") || !strings.Contains(err.Error(), "hack/assets.sh") {
		t.Errorf("got %v", err)
	}
}

func TestAProgramThatEndsAtOnceFailsTheStartWithItsLog(t *testing.T) {
	assets := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		if err := os.WriteFile(filepath.Join(assets, name), []byte("#!/bin/sh\necho broken $0\nexit 3\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	_, err := Start(t.Context(), Config{Dir: t.TempDir(), Assets: assets})
	if err == nil || !strings.Contains(err.Error(), "etcd ended") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v to notice", took)
	}
}
