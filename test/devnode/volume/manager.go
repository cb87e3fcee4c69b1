// Package volume gives pods their volumes as directories of this machine, with
// the contents, ownership and modes that the kubelet gives them: emptyDir,
// secret, configMap, downwardAPI, projected (bound service account tokens
// included, renewed before they expire) and claims bound to volumes of the
// node's own CSI driver.
//
// It imports client-go and package podenv.
package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"belay.dev/belay/test/devnode/podenv"
)

// Driver is the name of the CSI driver whose volumes are directories of this
// machine.
const Driver = "devnode.belay.dev"

// Config says where volumes are and where their contents come from.
type Config struct {
	// PodsDir holds a directory per pod uid.
	PodsDir string
	// ClaimsDir holds a directory per volume handle.
	ClaimsDir string
	Client    kubernetes.Interface
	Clock     clock.PassiveClock
	// Facts resolves downward API fields.
	Facts podenv.Facts
}

// Manager owns the volumes of a node's pods.
type Manager struct {
	cfg Config

	mu      sync.Mutex
	written map[string][32]byte  // digest of a volume's contents, by directory
	tokens  map[string]token     // by directory and path
	alone   map[string]types.UID // who uses a ReadWriteOncePod volume
}

// Volume is a mounted volume.
type Volume struct {
	// Path is its directory on this machine.
	Path string
	// ReadOnly holds for every container.
	ReadOnly bool
}

// NewManager makes a manager; it holds no resources.
func NewManager(cfg Config) *Manager {
	return &Manager{cfg: cfg, written: map[string][32]byte{}, tokens: map[string]token{}, alone: map[string]types.UID{}}
}

// Mount makes all volumes of pod. It may be called again after an error, which
// says what is missing.
func (m *Manager) Mount(ctx context.Context, pod *corev1.Pod) (map[string]Volume, error) {
	out := map[string]Volume{}
	var problems []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		mounted, err := m.mount(ctx, pod, v)
		if err != nil {
			problems = append(problems, fmt.Errorf("volume %q: %w", v.Name, err))
			continue
		}
		out[v.Name] = mounted
	}
	return out, errors.Join(problems...)
}

func (m *Manager) mount(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (Volume, error) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return m.claim(ctx, pod, v.PersistentVolumeClaim)
	case v.EmptyDir != nil:
		dir := m.dir(pod, v)
		if err := makeDir(dir, 0o777); err != nil {
			return Volume{}, err
		}
		return Volume{Path: dir}, own(dir, pod.Spec.SecurityContext, false)
	}
	dir := m.dir(pod, v)
	if err := m.fill(ctx, pod, v, dir); err != nil {
		return Volume{}, err
	}
	return Volume{Path: dir, ReadOnly: true}, nil
}

// Refresh brings the contents of secrets, config maps and tokens up to date in
// the running pod. An object that is gone leaves the last contents in place.
func (m *Manager) Refresh(ctx context.Context, pod *corev1.Pod) error {
	var problems []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim != nil || v.EmptyDir != nil {
			continue
		}
		if err := m.fill(ctx, pod, v, m.dir(pod, v)); err != nil {
			problems = append(problems, fmt.Errorf("volume %q: %w", v.Name, err))
		}
	}
	return errors.Join(problems...)
}

// Release removes what belongs to the pod alone. Claims keep their data.
func (m *Manager) Release(pod *corev1.Pod) error {
	m.mu.Lock()
	root := filepath.Join(m.cfg.PodsDir, string(pod.UID), "volumes")
	for dir := range m.written {
		if filepath.Dir(dir) == root {
			delete(m.written, dir)
		}
	}
	for key := range m.tokens {
		if rel, err := filepath.Rel(root, key); err == nil && filepath.IsLocal(rel) {
			delete(m.tokens, key)
		}
	}
	for name, uid := range m.alone {
		if uid == pod.UID {
			delete(m.alone, name)
		}
	}
	m.mu.Unlock()
	if err := os.RemoveAll(root); err != nil {
		return fmt.Errorf("remove the volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (m *Manager) dir(pod *corev1.Pod, v *corev1.Volume) string {
	return filepath.Join(m.cfg.PodsDir, string(pod.UID), "volumes", v.Name)
}

// claim resolves a claim to its volume's directory.
func (m *Manager) claim(ctx context.Context, pod *corev1.Pod, source *corev1.PersistentVolumeClaimVolumeSource) (Volume, error) {
	pvc, err := m.cfg.Client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, source.ClaimName, metav1.GetOptions{})
	if err != nil {
		return Volume{}, fmt.Errorf("read claim %q: %w", source.ClaimName, err)
	}
	if pvc.Status.Phase != corev1.ClaimBound || pvc.Spec.VolumeName == "" {
		return Volume{}, fmt.Errorf("claim %q is not bound", source.ClaimName)
	}
	pv, err := m.cfg.Client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return Volume{}, fmt.Errorf("read volume %q of claim %q: %w", pvc.Spec.VolumeName, source.ClaimName, err)
	}
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != Driver {
		return Volume{}, fmt.Errorf("claim %q is bound to volume %q, which is not of the CSI driver %s, the only one here", source.ClaimName, pv.Name, Driver)
	}
	dir, err := Dir(m.cfg.ClaimsDir, pv.Spec.CSI.VolumeHandle)
	if err != nil {
		return Volume{}, err
	}
	if _, err := os.Stat(dir); err != nil {
		return Volume{}, fmt.Errorf("volume %q: %w", pv.Name, err)
	}
	if err := m.reserve(pod, pv); err != nil {
		return Volume{}, err
	}
	if !source.ReadOnly {
		if err := own(dir, pod.Spec.SecurityContext, false); err != nil {
			return Volume{}, err
		}
	}
	return Volume{Path: dir, ReadOnly: source.ReadOnly}, nil
}

// reserve keeps a second pod from a ReadWriteOncePod volume.
func (m *Manager) reserve(pod *corev1.Pod, pv *corev1.PersistentVolume) error {
	for _, mode := range pv.Spec.AccessModes {
		if mode != corev1.ReadWriteOncePod {
			continue
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if by, taken := m.alone[pv.Name]; taken && by != pod.UID {
			return fmt.Errorf("volume %q has the access mode ReadWriteOncePod and is in use by the pod with uid %s", pv.Name, by)
		}
		m.alone[pv.Name] = pod.UID
	}
	return nil
}

// Dir returns the directory of a volume handle.
func Dir(claimsDir, handle string) (string, error) {
	if handle == "" || handle != filepath.Base(handle) || !filepath.IsLocal(handle) {
		return "", fmt.Errorf("volume handle %q is not a plain name", handle)
	}
	return filepath.Join(claimsDir, handle), nil
}

// Sources reads secrets and config maps of one namespace.
type Sources struct {
	Client    kubernetes.Interface
	Namespace string
}

// ConfigMap implements podenv.Sources.
func (s Sources) ConfigMap(ctx context.Context, name string) (map[string]string, error) {
	cm, err := s.Client.CoreV1().ConfigMaps(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, missing(err)
	}
	return cm.Data, nil
}

// Secret implements podenv.Sources.
func (s Sources) Secret(ctx context.Context, name string) (map[string][]byte, error) {
	secret, err := s.Client.CoreV1().Secrets(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, missing(err)
	}
	return secret.Data, nil
}

func missing(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", podenv.ErrNotFound, err)
	}
	return err
}

// token is a service account token that was issued to a pod.
type token struct {
	value  string
	issued time.Time
	expiry time.Time
}

// due says that it is time for a new token: after four fifths of its life, or a
// day, as the kubelet renews.
func (t token) due(now time.Time) bool {
	if t.value == "" {
		return true
	}
	life := t.expiry.Sub(t.issued)
	return now.Sub(t.issued) > min(life*4/5, 24*time.Hour)
}
