// Package provision is the storage of a process-backed node: it makes a
// directory and a volume for each claim of its storage classes, and removes both
// when a volume with the reclaim policy Delete is released. Binding is done by
// the real volume controller.
//
// It imports client-go and package volume.
package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"belay.dev/belay/test/devnode/volume"
)

// The storage classes. Class is the cluster's default one and binds at once, on
// any node; ClassWait binds where the claim's first pod is scheduled, as most
// clouds' classes do, which costs about a second.
const (
	Class     = "belay-devnode"
	ClassWait = "belay-devnode-wait"
)

const (
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	defaultClass  = "storageclass.kubernetes.io/is-default-class"
	provisioner   = "volume.kubernetes.io/storage-provisioner"
	selectedNode  = "volume.kubernetes.io/selected-node"
)

// Config says whose storage it is.
type Config struct {
	Client kubernetes.Interface
	// Node is the node's name.
	Node string
	// Dir holds the volumes' data.
	Dir string
	Log *slog.Logger
	// Ready is called once claims are served.
	Ready func()
}

// StorageLabel is the label of nodes that says where their volumes are: pods
// follow their claims to nodes with the same value.
const StorageLabel = "devnode.belay.dev/storage"

// storageAttribute is the same in a volume.
const storageAttribute = "storage"

// Storage is the value of StorageLabel for a directory of volumes.
func Storage(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:5])
}

// provisionerLoop makes volumes in a directory.
type provisionerLoop struct {
	client kubernetes.Interface
	node   string
	dir    string
	log    *slog.Logger
	claims corelisters.PersistentVolumeClaimLister
	queue  workqueue.TypedRateLimitingInterface[string]
}

// Run registers the storage class and the CSI driver and serves claims until ctx
// ends.
func Run(ctx context.Context, cfg Config) error {
	client, dir := cfg.Client, cfg.Dir
	p := &provisionerLoop{client: client, node: cfg.Node, dir: dir, log: cfg.Log,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 10*time.Second))}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of volumes: %w", err)
	}
	if err := p.register(ctx); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	claims, volumes := factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().PersistentVolumes()
	p.claims = claims.Lister()
	enqueue := func(prefix string) cache.ResourceEventHandlerFuncs {
		add := func(o any) {
			if key, err := cache.MetaNamespaceKeyFunc(o); err == nil {
				p.queue.Add(prefix + key)
			}
		}
		return cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}
	}
	if _, err := claims.Informer().AddEventHandler(enqueue(claimPrefix)); err != nil {
		return fmt.Errorf("watch claims: %w", err)
	}
	if _, err := volumes.Informer().AddEventHandler(enqueue(volumePrefix)); err != nil {
		return fmt.Errorf("watch volumes: %w", err)
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("read %v: %w", kind, context.Cause(ctx))
		}
	}
	cfg.Ready()
	stop := context.AfterFunc(ctx, p.queue.ShutDown)
	defer stop()
	for p.next(ctx, volumes.Lister()) {
	}
	return nil
}

const (
	claimPrefix  = "claim:"
	volumePrefix = "volume:"
)

func (p *provisionerLoop) next(ctx context.Context, volumes corelisters.PersistentVolumeLister) bool {
	key, quit := p.queue.Get()
	if quit {
		return false
	}
	defer p.queue.Done(key)
	var err error
	if name, ok := cutPrefix(key, volumePrefix); ok {
		err = p.reclaim(ctx, volumes, name)
	} else if name, ok := cutPrefix(key, claimPrefix); ok {
		err = p.provision(ctx, name)
	}
	if err != nil && ctx.Err() == nil {
		p.log.Warn("storage", "object", key, "error", err)
		p.queue.AddRateLimited(key)
		return true
	}
	p.queue.Forget(key)
	return true
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return "", false
	}
	return s[len(prefix):], true
}

func (p *provisionerLoop) register(ctx context.Context) error {
	driver := &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: volume.Driver},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired:       ptr.To(false),
			PodInfoOnMount:       ptr.To(false),
			FSGroupPolicy:        ptr.To(storagev1.FileFSGroupPolicy),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent},
		},
	}
	if _, err := p.client.StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register the CSI driver %s: %w", volume.Driver, err)
	}
	for name, mode := range map[string]storagev1.VolumeBindingMode{
		Class: storagev1.VolumeBindingImmediate, ClassWait: storagev1.VolumeBindingWaitForFirstConsumer,
	} {
		class := &storagev1.StorageClass{
			ObjectMeta:           metav1.ObjectMeta{Name: name},
			Provisioner:          volume.Driver,
			ReclaimPolicy:        ptr.To(corev1.PersistentVolumeReclaimDelete),
			VolumeBindingMode:    &mode,
			AllowVolumeExpansion: ptr.To(false),
		}
		if name == Class {
			class.Annotations = map[string]string{defaultClass: "true"}
		}
		if _, err := p.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("register the storage class %s: %w", name, err)
		}
	}
	return nil
}

// provision makes a volume for a claim that the volume controller handed over.
func (p *provisionerLoop) provision(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	claim, err := p.claims.PersistentVolumeClaims(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || claim.Annotations[provisioner] != volume.Driver {
		return nil
	}
	if node := claim.Annotations[selectedNode]; node != "" && node != p.node {
		return nil // that node's storage makes it
	}
	if ptr.Deref(claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) != corev1.PersistentVolumeFilesystem {
		p.log.Warn("a claim for a block device is left pending", "claim", key)
		return nil
	}
	handle := "pvc-" + string(claim.UID)
	dir, err := volume.Dir(p.dir, handle)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the volume: %w", err)
	}
	class, err := p.client.StorageV1().StorageClasses().Get(ctx, ptr.Deref(claim.Spec.StorageClassName, Class), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the claim's storage class: %w", err)
	}
	_, err = p.client.CoreV1().PersistentVolumes().Create(ctx, persistentVolume(claim, class, handle, Storage(p.dir)), metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return p.yield(ctx, handle, dir)
	case err != nil:
		return fmt.Errorf("create the volume: %w", err)
	}
	return nil
}

// yield removes a directory whose volume another node's storage made first.
func (p *provisionerLoop) yield(ctx context.Context, name, dir string) error {
	pv, err := p.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the volume: %w", err)
	}
	if pv.Spec.CSI != nil && pv.Spec.CSI.VolumeAttributes[storageAttribute] != Storage(p.dir) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove an unused volume: %w", err)
		}
	}
	return nil
}

func persistentVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, handle, storage string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: handle, Annotations: map[string]string{provisionedBy: volume.Driver}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   slices.Clone(claim.Spec.AccessModes),
			PersistentVolumeReclaimPolicy: ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete),
			StorageClassName:              class.Name,
			VolumeMode:                    ptr.To(corev1.PersistentVolumeFilesystem),
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: StorageLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{storage}}},
			}}}},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{
					Driver: volume.Driver, VolumeHandle: handle, VolumeAttributes: map[string]string{storageAttribute: storage},
				},
			},
		},
	}
}

// reclaim removes a released volume and its data.
func (p *provisionerLoop) reclaim(ctx context.Context, volumes corelisters.PersistentVolumeLister, name string) error {
	pv, err := volumes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if pv.Status.Phase != corev1.VolumeReleased || pv.DeletionTimestamp != nil || pv.Annotations[provisionedBy] != volume.Driver ||
		pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		pv.Spec.CSI == nil || pv.Spec.CSI.VolumeAttributes[storageAttribute] != Storage(p.dir) {
		return nil
	}
	dir, err := volume.Dir(p.dir, pv.Spec.CSI.VolumeHandle)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the data of volume %s: %w", name, err)
	}
	err = p.client.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pv.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete volume %s: %w", name, err)
	}
	return nil
}
