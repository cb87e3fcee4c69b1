package devnode_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestAProjectedTokenIsBoundToItsPod(t *testing.T) {
	ns := namespace(t)
	c := sh("main", "cat /token/token; echo; exec sleep 600")
	c.VolumeMounts = []corev1.VolumeMount{{Name: "token", MountPath: "/token"}}
	p := create(t, pod(ns, "identified", corev1.PodSpec{
		Containers: []corev1.Container{c},
		Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](600)}}},
		}}}},
	}))
	logged(t, p, "main", ".")
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: strings.TrimSpace(logs(t, p, "main"))}}
	got, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := got.Status
	if !s.Authenticated || s.User.Username != "system:serviceaccount:"+ns+":default" {
		t.Fatalf("the token is %+v", s)
	}
	for key, want := range map[string]string{"authentication.kubernetes.io/pod-name": p.Name, "authentication.kubernetes.io/pod-uid": string(p.UID)} {
		if extra := s.User.Extra[key]; len(extra) != 1 || extra[0] != want {
			t.Errorf("%s is %v, want %s", key, extra, want)
		}
	}
}

func TestTheDefaultServiceAccountMountLetsAPodTalkToTheAPIServer(t *testing.T) {
	ns := namespace(t)
	script := `d=/var/run/secrets/kubernetes.io/serviceaccount
curl -s --cacert $d/ca.crt -H "Authorization: Bearer $(cat $d/token)" https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces/$(cat $d/namespace)/pods | grep reason`
	p := create(t, pod(ns, "caller", corev1.PodSpec{Containers: []corev1.Container{sh("main", script)}}))
	await(t, p, corev1.PodSucceeded)
	// It is known and may not list pods: the API server believed the token.
	if out := logs(t, p, "main"); !strings.Contains(out, `"Forbidden"`) {
		t.Errorf("the API server answered %q", out)
	}
}

func TestAMissingSecretHoldsTheContainerBackUntilItAppears(t *testing.T) {
	ns := namespace(t)
	c := sh("main", "echo $KEY")
	c.Env = []corev1.EnvVar{{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Key: "key"}}}}
	p := create(t, pod(ns, "waits", corev1.PodSpec{Containers: []corev1.Container{c}}))
	eventually(t, "the container waits for the secret", func() error {
		got := get(t, ns, p.Name)
		if len(got.Status.ContainerStatuses) > 0 {
			if s := got.Status.ContainerStatuses[0].State.Waiting; s != nil && s.Reason == "CreateContainerConfigError" && strings.Contains(s.Message, `secret "late"`) {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(got))
	})
	putSecret(t, ns, "late", "key", "value")
	await(t, p, corev1.PodSucceeded)
	if out := logs(t, p, "main"); out != "value\n" {
		t.Errorf("the container has %q", out)
	}
}

func putSecret(t *testing.T, ns, name, key, value string) {
	t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, StringData: map[string]string{key: value}}
	_, err := client.CoreV1().Secrets(ns).Create(t.Context(), s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.CoreV1().Secrets(ns).Update(t.Context(), s, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAMountedSecretFollowsItsObject(t *testing.T) {
	ns := namespace(t)
	putSecret(t, ns, "keys", "primary", "old")
	c := sh("main", "cat /keys/primary; echo; while grep -q old /keys/primary; do sleep 0.02; done; cat /keys/primary")
	c.VolumeMounts = []corev1.VolumeMount{{Name: "keys", MountPath: "/keys", ReadOnly: true}}
	p := create(t, pod(ns, "rotates", corev1.PodSpec{Containers: []corev1.Container{c},
		Volumes: []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}}}))
	logged(t, p, "main", "old")
	putSecret(t, ns, "keys", "primary", "new")
	await(t, p, corev1.PodSucceeded)
	if out := logs(t, p, "main"); out != "old\nnew\n" {
		t.Errorf("the container read %q", out)
	}
}

func TestAClaimKeepsItsDataBetweenPodsAndLosesItWhenReclaimed(t *testing.T) {
	ns := namespace(t)
	claim, _ := agentPod(ns)
	if _, err := client.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	with := func(name, script string) *corev1.Pod {
		c := sh("main", script)
		c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data", SubPathExpr: "$(DIR)"}}
		c.Env = []corev1.EnvVar{{Name: "DIR", Value: "ledger"}}
		return pod(ns, name, corev1.PodSpec{Containers: []corev1.Container{c}, Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "run"}}}}})
	}
	writer := create(t, with("writer", "echo kept > /data/file; echo written; exec sleep 600"))
	running(t, writer, "main")
	eventually(t, "the first pod has written", func() error {
		if out := logs(t, writer, "main"); out != "written\n" {
			return fmt.Errorf("it said %q so far", out)
		}
		return nil
	})
	// The claim is ReadWriteOncePod: the scheduler holds a second pod back.
	reader := create(t, with("reader", "cat /data/file"))
	eventually(t, "the second pod is held back", func() error {
		got := get(t, ns, reader.Name)
		if c := conditionOf(got, corev1.PodScheduled); c.Status == corev1.ConditionFalse && got.Spec.NodeName == "" {
			return nil
		}
		return fmt.Errorf("%s", describe(got))
	})
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), writer.Name, *metav1.NewDeleteOptions(1)); err != nil {
		t.Fatal(err)
	}
	await(t, reader, corev1.PodSucceeded)
	if out := logs(t, reader, "main"); out != "kept\n" {
		t.Errorf("the second pod read %q", out)
	}

	bound, err := client.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "run", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := nodeDir + "/claims/" + bound.Spec.VolumeName
	if _, err := os.Stat(dir + "/ledger/file"); err != nil {
		t.Fatalf("the claim's data: %v", err)
	}
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), reader.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().PersistentVolumeClaims(ns).Delete(t.Context(), "run", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the volume and its data are gone", func() error {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			return fmt.Errorf("%s is still there", dir)
		}
		if _, err := client.CoreV1().PersistentVolumes().Get(t.Context(), bound.Spec.VolumeName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.New("the volume's object is still there")
		}
		return nil
	})
}

func TestFSGroupOwnsTheVolumes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root every file belongs to the one user")
	}
	ns := namespace(t)
	putSecret(t, ns, "keys", "primary", "x")
	c := sh("main", "id -G; stat -L -c '%n %a %g' /empty /keys/primary /token/token; touch /empty/new; stat -c '%u %g' /empty/new")
	c.VolumeMounts = []corev1.VolumeMount{{Name: "empty", MountPath: "/empty"}, {Name: "keys", MountPath: "/keys"}, {Name: "token", MountPath: "/token"}}
	p := create(t, pod(ns, "owned", corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](65533), RunAsGroup: ptr.To[int64](65533), FSGroup: ptr.To[int64](65532),
			SupplementalGroups: []int64{4711}},
		Containers: []corev1.Container{c},
		Volumes: []corev1.Volume{
			{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys", DefaultMode: ptr.To[int32](0o400)}}},
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}},
		},
	}))
	await(t, p, corev1.PodSucceeded)
	want := "65533 4711 65532\n/empty 2777 65532\n/keys/primary 440 65532\n/token/token 640 65532\n65533 65532\n"
	if out := logs(t, p, "main"); out != want {
		t.Errorf("got:\n%swant:\n%s", out, want)
	}
}

// apartPod has a runner with a secret and a workspace that looks for it, in every
// process and in every file that it can read, and leaves what it found as its
// message.
func apartPod(ns string) *corev1.Pod {
	runner := sh("runner", "cat /keys/primary > /dev/null; exec sleep 600")
	runner.Env = []corev1.EnvVar{{Name: "MARK", Value: "runner-environment"}}
	runner.VolumeMounts = []corev1.VolumeMount{{Name: "keys", MountPath: "/keys"}}
	runner.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](65532)}
	workspace := sh("workspace", `exec > /dev/termination-log 2>&1
for p in /proc/[0-9]*; do cat $p/environ 2>/dev/null | grep -a runner-environment && echo LEAK $p; ls $p/root/keys 2>/dev/null && echo LEAK $p; done
ls /keys `+nodeDir+` 2>/dev/null && echo LEAK
grep -ars s3cret-of-the /tmp /etc /run /var /root /home /work 2>/dev/null && echo LEAK
cat /etc/shadow 2>/dev/null && echo LEAK
ls /proc | grep -c '^[0-9]' > /tmp/count; test $(cat /tmp/count) -lt 6 || echo LEAK processes
echo searched`)
	workspace.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](65533)}
	return pod(ns, "apart", corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](1),
		InitContainers: []corev1.Container{sidecar(runner)}, Containers: []corev1.Container{workspace},
		Volumes: []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}},
	})
}

func TestContainersOfOnePodCannotReachEachOthersVolumesOrProcesses(t *testing.T) {
	ns := namespace(t)
	putSecret(t, ns, "keys", "primary", "s3cret-of-the-runner")
	got := await(t, create(t, apartPod(ns)), corev1.PodSucceeded)
	if s := got.Status.ContainerStatuses[0].State.Terminated; s == nil || s.Message != "searched\n" {
		t.Errorf("the workspace found: %+v", s)
	}
}

func TestWhatTheNodeCannotGiveIsRefused(t *testing.T) {
	ns := namespace(t)
	for name, c := range map[string]struct {
		change func(*corev1.PodSpec)
		says   string
	}{
		"host-path": {func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}, "volume host: hostPath"},
		"privileged": {func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, "container main: privileged"},
		"host-network": {func(s *corev1.PodSpec) { s.HostNetwork = true }, "hostNetwork"},
		"capability": {func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
		}, "container main: capability SYS_ADMIN"},
		"hook": {func(s *corev1.PodSpec) {
			s.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
		}, "container main: lifecycle hooks"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := corev1.PodSpec{Containers: []corev1.Container{sh("main", "true")}}
			c.change(&spec)
			got := await(t, create(t, pod(ns, name, spec)), corev1.PodFailed)
			if got.Status.Reason != "DevnodeUnsupported" || !strings.Contains(got.Status.Message, c.says) {
				t.Errorf("refused with %q: %q, want the message to say %q", got.Status.Reason, got.Status.Message, c.says)
			}
		})
	}
}

func TestTwoPodsCannotServeOnePort(t *testing.T) {
	ns := namespace(t)
	serving := func(name string) *corev1.Pod {
		c := sh("main", "exec sleep 600")
		c.Ports = []corev1.ContainerPort{{ContainerPort: 4711}}
		return create(t, pod(ns, name, corev1.PodSpec{Containers: []corev1.Container{c}}))
	}
	running(t, serving("first"), "main")
	got := await(t, serving("second"), corev1.PodFailed)
	if got.Status.Reason != "DevnodeUnsupported" || !strings.Contains(got.Status.Message, "port 4711 is in use by pod "+ns+"/first") {
		t.Errorf("the second pod is %s", describe(got))
	}
}

func TestAnUnknownImageIsRetriedUntilItIsKnown(t *testing.T) {
	ns := namespace(t)
	c := sh("main", "true")
	c.Image = "example.com/none:1"
	p := create(t, pod(ns, "pulls", corev1.PodSpec{Containers: []corev1.Container{c}}))
	for _, reason := range []string{"ErrImagePull", "ImagePullBackOff"} {
		eventually(t, "the container waits with "+reason, func() error {
			got := get(t, ns, p.Name)
			if len(got.Status.ContainerStatuses) > 0 {
				if s := got.Status.ContainerStatuses[0].State.Waiting; s != nil && s.Reason == reason && strings.Contains(s.Message, `"example.com/none:1"`) {
					return nil
				}
			}
			return fmt.Errorf("%s", describe(got))
		})
	}
	image := hostImage
	image.Env = []string{"FROM=image"}
	if err := node.RegisterImage("example.com/none:1", image); err != nil {
		t.Fatal(err)
	}
	await(t, p, corev1.PodSucceeded)
}

func TestAnImageIsADirectoryWithItsConfiguration(t *testing.T) {
	ns := namespace(t)
	root := t.TempDir()
	if err := os.Mkdir(root+"/data", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/data/file", []byte("of the image\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// A program that needs nothing else of an image: this test's own sleep would
	// need libraries, a static shell may not exist, so the host's files stand in.
	image := hostImage
	image.Expose = []string{root}
	image.Entrypoint, image.Cmd = []string{"sh", "-c"}, []string{"cat " + root + "/data/file; id -u; pwd; echo $FROM"}
	image.Env, image.WorkingDir, image.User = []string{"FROM=image"}, "/srv/made", 12345
	if err := node.RegisterImage("configured", image); err != nil {
		t.Fatal(err)
	}
	c := corev1.Container{Name: "main", Image: "configured"}
	p := create(t, pod(ns, "configured", corev1.PodSpec{Containers: []corev1.Container{c}}))
	await(t, p, corev1.PodSucceeded)
	if out := logs(t, p, "main"); out != "of the image\n12345\n/srv/made\nimage\n" {
		t.Errorf("got %q", out)
	}
}

func TestLogsCanBeFollowedAndCut(t *testing.T) {
	ns := namespace(t)
	p := create(t, pod(ns, "talks", corev1.PodSpec{Containers: []corev1.Container{sh("main", "echo one; echo two >&2; sleep 0.5; echo three; printf end")}}))
	running(t, p, "main")
	followed, err := readLogs(t, p, corev1.PodLogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	// Two streams are two pipes: their order is not certain.
	if lines := slices.Sorted(strings.Lines(followed)); strings.Join(lines, "") != "end\none\nthree\ntwo\n" {
		t.Errorf("followed: %q", followed)
	}
	if out, err := readLogs(t, p, corev1.PodLogOptions{TailLines: ptr.To[int64](2)}); err != nil || out != "three\nend\n" {
		t.Errorf("the last two lines are %q, %v", out, err)
	}
	if out, err := readLogs(t, p, corev1.PodLogOptions{Timestamps: true, TailLines: ptr.To[int64](1)}); err != nil || !strings.HasSuffix(out, "Z end\n") {
		t.Errorf("with timestamps: %q, %v", out, err)
	}
	if _, err := readLogs(t, p, corev1.PodLogOptions{Previous: true}); !apierrors.IsBadRequest(err) {
		t.Errorf("logs of a run that never was: %v, want a bad request", err)
	}
}
