package devnode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/test/devnode/container"
	"belay.dev/belay/test/devnode/lifecycle"
	"belay.dev/belay/test/devnode/logfile"
	"belay.dev/belay/test/devnode/podenv"
	"belay.dev/belay/test/devnode/volume"
)

// Reasons of containers that wait, as the kubelet names them.
const (
	waitImage     = "ErrImagePull"
	waitImageBack = "ImagePullBackOff"
	waitConfig    = "CreateContainerConfigError"
	waitCreate    = "CreateContainerError"
)

// start is all that a container's start needs, taken from the worker.
type start struct {
	node    *Node
	pod     *corev1.Pod
	spec    *corev1.Container
	dir     string
	attempt int32
	volumes map[string]volume.Volume
	again   bool // the image was missing before
}

// startContainer starts a container in the background.
func (w *worker) startContainer(ctx context.Context, name string) {
	c := w.facts.Containers[name]
	c.State = lifecycle.Starting
	attempt := c.Restarts
	if c.Last != nil {
		attempt++
	}
	s := &start{
		node: w.node, pod: w.pod, spec: w.spec(name), dir: w.dir(), attempt: attempt, volumes: w.volumes,
		again: c.WaitReason == waitImage || c.WaitReason == waitImageBack,
	}
	w.helps(func() {
		b, reason, err := s.run(ctx)
		if err != nil {
			w.send(notStarted{name: name, reason: reason, message: err.Error()})
			return
		}
		if !w.send(b) {
			b.process.Kill()
			<-b.over
		}
	})
}

func (w *worker) dir() string {
	return filepath.Join(w.node.cfg.Dir, "pods", string(w.pod.UID))
}

// removeRoot removes what a container wrote outside its volumes.
func (w *worker) removeRoot(id string) error {
	return os.RemoveAll(filepath.Join(w.dir(), "roots", trimID(id)))
}

// idScheme begins container and image ids.
const idScheme = "devnode://"

func (s *start) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", s.pod.UID, s.spec.Name, s.attempt))
	return hex.EncodeToString(sum[:])
}

// logPath is <dir>/logs/<namespace>_<pod>_<uid>/<container>/<attempt>.log, as a
// kubelet lays logs out.
func (s *start) logPath() string {
	return filepath.Join(s.node.cfg.Dir, "logs", s.pod.Namespace+"_"+s.pod.Name+"_"+string(s.pod.UID), s.spec.Name, fmt.Sprintf("%d.log", s.attempt))
}

// run starts the container and returns once its command runs or has failed to.
// The reason goes with an error.
func (s *start) run(ctx context.Context) (begun, string, error) {
	image, ok := s.node.image(s.spec.Image)
	if !ok {
		reason := waitImage
		if s.again {
			reason = waitImageBack
		}
		return begun{}, reason, fmt.Errorf("image %q is none of the node's images, which are: %s", s.spec.Image, strings.Join(s.node.imageNames(), ", "))
	}
	env, err := podenv.Environment(ctx, s.pod, s.spec, s.envFacts(image), volume.Sources{Client: s.node.client, Namespace: s.pod.Namespace})
	if err != nil {
		return begun{}, waitConfig, err
	}
	spec, err := s.containerSpec(image, env)
	if err != nil {
		return begun{}, waitConfig, err
	}
	message := s.terminationLog(&spec)
	if err := s.mounts(&spec, env); err != nil {
		return begun{}, waitConfig, err
	}
	log, err := logfile.Create(s.logPath(), s.node.cfg.Clock)
	if err != nil {
		return begun{}, waitCreate, err
	}
	process, err := container.Start(spec, log.Stream("stdout"), log.Stream("stderr"))
	if err != nil {
		return begun{}, waitCreate, fmt.Errorf("%w%s", err, closing(log))
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		<-process.Done()
		if err := log.Close(); err != nil {
			s.node.cfg.Log.Warn("close a log", "path", s.logPath(), "error", err)
		}
	}()
	select {
	case <-process.Started():
	case <-ctx.Done():
		process.Kill()
		<-over
	}
	return begun{
		name: s.spec.Name, process: process, over: over, logPath: s.logPath(), id: idScheme + s.id(), imageID: idScheme + s.spec.Image, message: message,
	}, "", nil
}

func closing(log *logfile.File) string {
	if err := log.Close(); err != nil {
		return "; " + err.Error()
	}
	return ""
}

func (n *Node) imageNames() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.images))
}

func (s *start) envFacts(image Image) podenv.Facts {
	facts := s.node.facts
	base := []corev1.EnvVar{{Name: "PATH", Value: defaultPath}, {Name: "HOSTNAME", Value: s.hostname()}}
	for _, kv := range image.Env {
		name, value, _ := strings.Cut(kv, "=")
		base = append(base, corev1.EnvVar{Name: name, Value: value})
	}
	facts.Base = append(base, facts.Base...)
	return facts
}

func (s *start) hostname() string {
	name := s.pod.Name
	if s.pod.Spec.Hostname != "" {
		name = s.pod.Spec.Hostname
	}
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-.")
	}
	return name
}

// containerSpec says who runs what in which image.
func (s *start) containerSpec(image Image, env []corev1.EnvVar) (container.Spec, error) {
	files, err := image.files()
	if err != nil {
		return container.Spec{}, err
	}
	pod, own := ptr.Deref(s.pod.Spec.SecurityContext, corev1.PodSecurityContext{}), ptr.Deref(s.spec.SecurityContext, corev1.SecurityContext{})
	uid := first(own.RunAsUser, pod.RunAsUser, image.User)
	gid := first(own.RunAsGroup, pod.RunAsGroup, image.Group)
	if ptr.Deref(first(&own.RunAsNonRoot, &pod.RunAsNonRoot, nil), false) && uid == 0 {
		return container.Spec{}, fmt.Errorf("container %s has runAsNonRoot and its image runs as root", s.spec.Name)
	}
	spec := container.Spec{
		Hostname: s.hostname(), Root: filepath.Join(s.dir, "roots", s.id()), Files: files,
		ReadOnlyRoot: ptr.Deref(own.ReadOnlyRootFilesystem, false),
		Args:         podenv.Command(s.spec, image.Entrypoint, image.Cmd, env), Env: podenv.Strings(env),
		Dir: image.WorkingDir, UID: int(uid), GID: int(gid),
		NoNewPrivileges: !ptr.Deref(own.AllowPrivilegeEscalation, true),
		Capabilities:    capabilities(own.Capabilities),
	}
	if s.spec.WorkingDir != "" {
		spec.Dir = s.spec.WorkingDir
	}
	for _, g := range pod.SupplementalGroups {
		spec.Groups = append(spec.Groups, int(g))
	}
	if pod.FSGroup != nil {
		spec.Groups = append(spec.Groups, int(*pod.FSGroup))
	}
	if err := os.RemoveAll(spec.Root); err != nil {
		return spec, fmt.Errorf("empty the container's root: %w", err)
	}
	if err := os.MkdirAll(spec.Root, 0o755); err != nil {
		return spec, fmt.Errorf("make the container's root: %w", err)
	}
	return spec, nil
}

// first returns the container's, else the pod's, else the image's value.
func first[T any](own, pod *T, image T) T {
	if own != nil {
		return *own
	}
	if pod != nil {
		return *pod
	}
	return image
}

func capabilities(c *corev1.Capabilities) []string {
	keep := slices.Clone(container.DefaultCapabilities)
	if c == nil {
		return keep
	}
	plain := func(c corev1.Capability) string { return strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_") }
	for _, d := range c.Drop {
		if plain(d) == "ALL" {
			keep = nil
		}
		keep = slices.DeleteFunc(keep, func(k string) bool { return k == plain(d) })
	}
	for _, a := range c.Add {
		keep = append(keep, plain(a))
	}
	return keep
}

// mounts lays the pod's volumes and the generated files of /etc over the image.
func (s *start) mounts(spec *container.Spec, env []corev1.EnvVar) error {
	taken := map[string]bool{}
	for _, m := range s.spec.VolumeMounts {
		v, ok := s.volumes[m.Name]
		if !ok {
			return fmt.Errorf("volumeMount %s names no volume of the pod", m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = podenv.Expand(m.SubPathExpr, podenv.Lookup(env))
		}
		source := v.Path
		if sub != "" {
			var err error
			if source, err = volume.SubPath(v.Path, sub); err != nil {
				return fmt.Errorf("volumeMount %s: %w", m.Name, err)
			}
		}
		target := filepath.Clean(m.MountPath)
		taken[target] = true
		spec.Mounts = append(spec.Mounts, container.Mount{Source: source, Target: target, ReadOnly: m.ReadOnly || v.ReadOnly})
	}
	files, err := s.etc()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if target := "/etc/" + name; !taken[target] && !taken["/etc"] {
			spec.Mounts = append(spec.Mounts, container.Mount{Source: files[name], Target: target, ReadOnly: true})
		}
	}
	return nil
}

// etc writes the files that a kubelet and a runtime generate for a pod.
func (s *start) etc() (map[string]string, error) {
	dir := filepath.Join(s.dir, "etc", s.spec.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of /etc: %w", err)
	}
	var hosts strings.Builder
	fmt.Fprintf(&hosts, "127.0.0.1\tlocalhost %s\n::1\tlocalhost\n", s.hostname())
	fmt.Fprintf(&hosts, "127.0.0.1\tkubernetes kubernetes.default kubernetes.default.svc\n")
	for _, alias := range s.pod.Spec.HostAliases {
		fmt.Fprintf(&hosts, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, " "))
	}
	contents := map[string][]byte{"hosts": []byte(hosts.String()), "hostname": []byte(s.hostname() + "\n")}
	if resolv, err := os.ReadFile("/etc/resolv.conf"); err == nil {
		contents["resolv.conf"] = resolv
	}
	out := map[string]string{}
	for name, data := range contents {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, data, 0o644); err != nil {
			return nil, fmt.Errorf("write /etc/%s: %w", name, err)
		}
		out[name] = at
	}
	return out, nil
}

// Bounds of a termination message, as the kubelet has them.
const (
	maxMessage     = 4096
	maxLogMessage  = 2048
	maxLogMessages = 80
)

// terminationLog adds the file that the container may leave a message in, and
// returns how to read it when the container has ended.
func (s *start) terminationLog(spec *container.Spec) func(int32) string {
	at := s.spec.TerminationMessagePath
	if at == "" {
		at = corev1.TerminationMessagePathDefault
	}
	file := filepath.Join(s.dir, "messages", s.id())
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, nil, 0o666)
	}
	if err == nil {
		err = os.Chmod(file, 0o666)
	}
	if err != nil {
		s.node.cfg.Log.Warn("make a termination message file", "error", err)
	} else {
		spec.Mounts = append(spec.Mounts, container.Mount{Source: file, Target: filepath.Clean(at)})
	}
	policy, log := s.spec.TerminationMessagePolicy, s.logPath()
	return func(code int32) string {
		text := readEnd(file, maxMessage)
		if text == "" && code != 0 && policy == corev1.TerminationMessageFallbackToLogsOnError {
			text, _ = logfile.Tail(log, maxLogMessages, maxLogMessage)
		}
		return text
	}
}

// readEnd reads the end of a file.
func readEnd(path string, most int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	size := min(info.Size(), most)
	data := make([]byte, size)
	n, _ := f.ReadAt(data, info.Size()-size)
	return strings.ToValidUTF8(string(data[:n]), "�")
}
