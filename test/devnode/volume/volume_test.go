package volume

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// contents reads every visible file below dir through its links.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(string)
	walk = func(rel string) {
		entries, err := os.ReadDir(filepath.Join(dir, rel))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := filepath.Join(rel, e.Name())
			if strings.HasPrefix(e.Name(), "..") {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if info.IsDir() {
				walk(name)
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			out[name] = fmt.Sprintf("%o %s", info.Mode().Perm(), data)
		}
	}
	walk("")
	return out
}

type bench struct {
	*Manager
	client *fake.Clientset
	clock  *testclock.FakeClock
	tokens int // issued so far
}

func newBench(t *testing.T, objects ...runtime.Object) *bench {
	t.Helper()
	b := &bench{client: fake.NewClientset(objects...), clock: testclock.NewFakeClock(noon)}
	b.client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		request := a.(clienttesting.CreateActionImpl).GetObject().(*authenticationv1.TokenRequest)
		b.tokens++
		request.Status = authenticationv1.TokenRequestStatus{
			Token:               fmt.Sprintf("token-%d-for-%s", b.tokens, request.Spec.BoundObjectRef.UID),
			ExpirationTimestamp: metav1.NewTime(b.clock.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second)),
		}
		return true, request, nil
	})
	dir := t.TempDir()
	b.Manager = NewManager(Config{PodsDir: filepath.Join(dir, "pods"), ClaimsDir: filepath.Join(dir, "claims"), Client: b.client, Clock: b.clock})
	return b
}

func projected(sources ...corev1.VolumeProjection) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "run-1", UID: "u-1", Labels: map[string]string{"app": "x"}},
		Spec: corev1.PodSpec{ServiceAccountName: "runner", Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: ptr.To[int32](0o440)}}}}},
	}
}

func secret(name string, data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

func TestAProjectedVolumeHoldsWhatItsSourcesSay(t *testing.T) {
	b := newBench(t, secret("keys", map[string]string{"primary": "p", "other": "o"}),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm"}, Data: map[string]string{"ca.crt": "CA"}, BinaryData: map[string][]byte{"bin": {7}}})
	named := func(n string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: n} }
	p := projected(
		corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named("keys"), Items: []corev1.KeyToPath{{Key: "primary", Path: "keys/primary", Mode: ptr.To[int32](0o400)}}}},
		corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named("keys"), Optional: ptr.To(true), Items: []corev1.KeyToPath{{Key: "none", Path: "keys/none"}}}},
		corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named("absent"), Optional: ptr.To(true)}},
		corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("cm")}},
		corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
		corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](3600)}},
	)
	volumes, err := b.Mount(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"keys/primary": "400 p", "ca.crt": "440 CA", "bin": "440 \a", "labels": `440 app="x"`, "token": "440 token-1-for-u-1",
	}
	if diff := cmp.Diff(want, contents(t, volumes["v"].Path)); diff != "" {
		t.Errorf("otherwise (-want +got):\n%s", diff)
	}
	if !volumes["v"].ReadOnly {
		t.Error("the volume can be written")
	}
	if err := b.Release(p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(volumes["v"].Path); !os.IsNotExist(err) {
		t.Errorf("the released volume is there: %v", err)
	}
}

func TestATokenIsRenewedAfterFourFifthsOfItsLife(t *testing.T) {
	b := newBench(t)
	p := projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](1000)}})
	volumes, err := b.Mount(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after time.Duration
		want  string
	}{
		{800 * time.Second, "token-1-for-u-1"},
		{801 * time.Second, "token-2-for-u-1"},
		{1600 * time.Second, "token-2-for-u-1"},
		{1602 * time.Second, "token-3-for-u-1"},
	} {
		b.clock.SetTime(noon.Add(step.after))
		if err := b.Refresh(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, volumes["v"].Path)["token"]; got != "440 "+step.want {
			t.Errorf("after %v the token is %q, want %q", step.after, got, step.want)
		}
	}
}

func TestATokenThatCannotBeRenewedIsKeptWhileItIsValid(t *testing.T) {
	b := newBench(t)
	p := projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](1000)}})
	volumes, err := b.Mount(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	b.client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, context.DeadlineExceeded
	})
	b.clock.SetTime(noon.Add(900 * time.Second))
	if err := b.Refresh(t.Context(), p); err != nil {
		t.Errorf("a valid token is left: %v", err)
	}
	b.clock.SetTime(noon.Add(1000 * time.Second))
	if err := b.Refresh(t.Context(), p); err == nil {
		t.Error("an expired token that cannot be renewed is no error")
	}
	if got := contents(t, volumes["v"].Path)["token"]; got != "440 token-1-for-u-1" {
		t.Errorf("the token is %q", got)
	}
}

func TestARefreshSwitchesAllFilesAtOnceAndDropsOldOnes(t *testing.T) {
	b := newBench(t, secret("keys", map[string]string{"a": "1", "b": "1"}))
	p := projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}}})
	volumes, err := b.Mount(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	dir := volumes["v"].Path
	before, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Refresh(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if same, _ := os.Readlink(filepath.Join(dir, dataLink)); same != before {
		t.Error("a refresh without a change writes")
	}
	if _, err := b.client.CoreV1().Secrets("ns").Update(t.Context(), secret("keys", map[string]string{"b": "2", "c": "2"}), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Refresh(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"b": "440 2", "c": "440 2"}, contents(t, dir)); diff != "" {
		t.Errorf("otherwise (-want +got):\n%s", diff)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 4 { // ..data, its directory, b and c
		t.Errorf("%d entries are in the volume, want 4: %v", len(entries), entries)
	}
	if err := b.client.CoreV1().Secrets("ns").Delete(t.Context(), "keys", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Refresh(t.Context(), p); err == nil {
		t.Error("a secret that is gone is no error")
	}
	if got := contents(t, dir)["b"]; got != "440 2" {
		t.Errorf("the last contents are lost: %q", got)
	}
}

func TestWhatAVolumeLacksIsNamed(t *testing.T) {
	b := newBench(t, secret("keys", map[string]string{"a": "1"}),
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pending"}})
	named := corev1.LocalObjectReference{Name: "keys"}
	for want, p := range map[string]*corev1.Pod{
		`volume "v": secret "absent": not found`:                   projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}}}),
		`volume "v": secret "keys" references non-existent key: b`: projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named, Items: []corev1.KeyToPath{{Key: "b", Path: "b"}}}}),
		`volume "v": file name "../x" leaves the volume`:           projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named, Items: []corev1.KeyToPath{{Key: "a", Path: "../x"}}}}),
		`volume "v": claim "pending" is not bound`: {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: "u"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pending"}}}}}},
	} {
		if _, err := b.Mount(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %s", err, want)
		}
	}
}

func TestAReadWriteOncePodVolumeIsForOnePod(t *testing.T) {
	b := newBench(t,
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "run"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: "h"}}}})
	if err := os.MkdirAll(filepath.Join(b.cfg.ClaimsDir, "h"), 0o755); err != nil {
		t.Fatal(err)
	}
	user := func(uid string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: types.UID("u-" + uid)}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "run"}}}}}}
	}
	if _, err := b.Mount(t.Context(), user("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mount(t.Context(), user("2")); err == nil || !strings.Contains(err.Error(), "in use by the pod with uid u-1") {
		t.Errorf("a second pod: %v", err)
	}
	if err := b.Release(user("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mount(t.Context(), user("2")); err != nil {
		t.Errorf("after the first pod's end: %v", err)
	}
}

func TestSubPathIsMadeLikeItsVolumeAndFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o770|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	at, err := SubPath(dir, "a/b")
	if err != nil || at != filepath.Join(dir, "a", "b") {
		t.Fatalf("got %s, %v", at, err)
	}
	for _, p := range []string{filepath.Join(dir, "a"), at} {
		if info, err := os.Stat(p); err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o770 {
			t.Errorf("%s has the mode %v, %v", p, info.Mode(), err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "planted")); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"planted", "planted/passwd", "../x", "/etc"} {
		if at, err := SubPath(dir, sub); err == nil {
			t.Errorf("%s leads to %s", sub, at)
		}
	}
}

func TestOnRootMismatchLeavesAVolumeThatIsRightAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to a group")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sc := &corev1.PodSecurityContext{FSGroup: ptr.To[int64](65532), FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch)}
	mode := func() fs.FileMode {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	if err := own(dir, sc, false); err != nil || mode() != 0o660 {
		t.Errorf("the file has the mode %v, %v, want 0660", mode(), err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := own(dir, sc, false); err != nil || mode() != 0o600 {
		t.Errorf("OnRootMismatch changed the mode to %v, %v", mode(), err)
	}
	sc.FSGroupChangePolicy = nil
	if err := own(dir, sc, false); err != nil || mode() != 0o660 {
		t.Errorf("Always left the mode at %v, %v", mode(), err)
	}
}
