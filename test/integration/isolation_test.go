package integration

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

// search is what a model could do to find what is not meant for it: look at every process, mount and readable file. The
// words that it looks for are written so that the command itself does not contain them. What is the node's own software is
// left out, and so are the search's own findings.
const search = `mkdir -p seen; env > seen/env; cat /proc/*/environ > seen/environs 2>/dev/null; cat /proc/*/cmdline > seen/cmdlines 2>/dev/null
cat /proc/self/mountinfo > seen/mounts; ls -laR /belay > seen/belay 2>&1; ls -la /proc/*/root/ /proc/*/fd > seen/roots 2>&1
for word in ke''y-of- ey''JhbGciOi '"run''.start"'; do
  find / /dev/shm \( -path /proc -o -path /dev -o -path /sys -o -path /usr -o -path /lib -o -path /lib64 -o -path /bin -o -path /sbin -o -path /opt -o -path "$(go env GOROOT)" \) -prune \
    -o -type f -readable -exec grep -lF -e "$word" {} + 2>/dev/null
  grep -lF -e "$word" seen/env seen/environs seen/cmdlines seen/mounts seen/roots
done > found; cat found; cat leak; true`

func TestWorkspaceFindsNeitherCredentialsNorLedgerNorToken(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.provider("only", fmt.Sprintf(`
- calls: [{name: shell, arguments: {command: %q}}]
- expect: {omits: [%q]}
  answer: I looked everywhere.`, search, s.apiKey("only")))
	run := s.run("curious")
	// A setup step may have a secret; the workspace has not. This one leaks it into a file, which proves that the search
	// finds what is there, and lets the run meet a credential in a tool's output.
	run.Spec.Workspace.Setup = []v1alpha1.SetupStep{{
		Name: "leak", Command: []string{"sh", "-c", `printf '%s\n' "$KEY" > leak; printf 'eyJ%s decoy\n' hbGciOi > token`},
		Env: []v1alpha1.EnvVar{
			{Name: "KEY", ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: &v1alpha1.SecretKeyReference{Name: secretName, Key: "only"}}},
			{Name: "OTHER", Value: ptr.To("key-of-the-setup")},
		},
	}}
	s.create(s.secret("only"), s.ladder("only"), run)

	run = s.completes("curious")
	found := s.lines(run, "found")
	slices.Sort(found)
	if want := []string{"/workspace/leak", "/workspace/token"}; !slices.Equal(found, want) {
		t.Errorf("the search found %q, want only what the setup step had put there: %q", found, want)
	}
	seen := strings.Join(s.lines(run, filepath.Join("seen", "belay")), "\n")
	for _, private := range []string{"/belay/ledger", "/belay/credentials", "/belay/token", "/belay/texts"} {
		if strings.Contains(seen, private) {
			t.Errorf("the workspace sees %s:\n%s", private, seen)
		}
	}
	if !strings.Contains(seen, "toolbox.sock") {
		t.Errorf("the search did not get to the socket's directory:\n%s", seen)
	}
	if mounts := strings.Join(s.lines(run, filepath.Join("seen", "mounts")), "\n"); strings.Contains(mounts, "kubernetes.io") || !strings.Contains(mounts, " /workspace ") {
		t.Errorf("the workspace's mounts are to have /workspace and no token of the API server:\n%s", mounts)
	}
	s.wantSecretNowhere(run, s.apiKey("only"))
}

// wantSecretNowhere fails the test if the value is in the ledger, the objects, the events or the logs of a run.
func (s *scene) wantSecretNowhere(run *v1alpha1.AgentRun, value string) {
	s.t.Helper()
	files := 0
	err := filepath.WalkDir(s.ledgerDir(run), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(value)) {
			s.t.Errorf("%s has the credential", path)
		}
		return err
	})
	if err != nil || files == 0 {
		s.t.Errorf("looked at %d files of the ledger: %v", files, err)
	}
	for _, args := range [][]string{
		{"get", "arun,ladder,providerhealth,pods,events", "-o", "yaml"},
		{"logs", run.Status.PodName, "--all-containers"},
	} {
		out := s.kubectl(args...)
		if out == "" || strings.Contains(out, value) {
			s.t.Errorf("kubectl %s printed %d bytes, the credential among them: %t", strings.Join(args, " "), len(out), strings.Contains(out, value))
		}
	}
}
