package agentrun

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
	"belay.dev/belay/internal/contract"
)

// Where things are in a run's containers.
const (
	imageBin        = "/usr/local/bin" // where Belay's image has its commands
	binPath         = "/belay/bin"
	toolboxPath     = binPath + "/toolbox"
	socketDir       = "/belay/run"
	socketPath      = socketDir + "/toolbox.sock"
	ledgerPath      = "/belay/ledger"
	setupPath       = "/belay/setup" // in setup containers only
	credentialsPath = "/belay/credentials"
	tokenPath       = "/belay/token"
	textsPath       = "/belay/texts"
	workspacePath   = "/workspace"
)

// The pod's volumes, and the directories that one claim gives to runner and workspace.
const (
	volumeBin         = "bin"
	volumeSocket      = "run"
	volumeTmp         = "tmp"
	volumeCredentials = "credentials"
	volumeToken       = "token"
	volumeTexts       = "texts"
	volumeWorkspace   = "workspace"
	volumeLedger      = "ledger"

	subPathLedger    = "ledger"
	subPathWorkspace = "workspace"
	// subPathSetup holds the markers of setup steps that have succeeded, in a directory for each run. The workspace does not
	// see it: its commands could otherwise make a step run again, with the step's secrets, over files that they had planted.
	subPathSetup = "setup"
)

const (
	ledgerSuffix = "-ledger"
	// tokenSeconds is the lifetime of the runner's token; the kubelet renews it in time.
	tokenSeconds int64 = 3607
	// rootCAConfigMap is where every namespace has the API server's certificate authority.
	rootCAConfigMap = "kube-root-ca.crt"
)

// podVolumes are the volumes of a run's pod.
func podVolumes(run *v1alpha1.AgentRun, ladder *v1alpha1.RouteLadder) []corev1.Volume {
	volumes := []corev1.Volume{claimVolume(volumeWorkspace, workspaceClaim(run))}
	if ledgerVolume(run) == volumeLedger {
		volumes = append(volumes, claimVolume(volumeLedger, ledgerClaim(run)))
	}
	for _, name := range []string{volumeBin, volumeSocket, volumeTmp} {
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	volumes = append(volumes,
		projectedVolume(volumeCredentials, credentialSources(ladder)),
		projectedVolume(volumeToken, []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To(tokenSeconds)}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCAConfigMap},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
		}))
	if sources := textSources(run); len(sources) > 0 {
		volumes = append(volumes, projectedVolume(volumeTexts, sources))
	}
	return volumes
}

func claimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

// projectedVolume is readable by its owner and the pod's group alone.
func projectedVolume(name string, sources []corev1.VolumeProjection) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: ptr.To[int32](0o440)},
	}}
}

// credentialSources projects the credentials of the ladder's providers as <secret>/<key>. A Secret or key that does not
// exist keeps no pod from starting; the runner skips its legs and says so.
func credentialSources(ladder *v1alpha1.RouteLadder) []corev1.VolumeProjection {
	var refs []v1alpha1.SecretKeyReference
	for i := range ladder.Spec.Providers {
		if c := ladder.Spec.Providers[i].Credential; c != nil {
			refs = append(refs, c.SecretRef, v1alpha1.SecretKeyReference{Name: c.SecretRef.Name, Key: contract.AllowedHostsKey})
		}
	}
	slices.SortFunc(refs, func(a, b v1alpha1.SecretKeyReference) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	var sources []corev1.VolumeProjection
	for _, ref := range slices.Compact(refs) {
		sources = append(sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name},
			Items:                []corev1.KeyToPath{{Key: ref.Key, Path: ref.Name + "/" + ref.Key}},
			Optional:             ptr.To(true),
		}})
	}
	return sources
}

// textSources projects the texts that the run takes from ConfigMaps. The pod does not start before they exist.
func textSources(run *v1alpha1.AgentRun) []corev1.VolumeProjection {
	var sources []corev1.VolumeProjection
	for _, text := range []struct {
		from *v1alpha1.TextSource
		path string
	}{{run.Spec.TaskFrom, "task"}, {run.Spec.SystemFrom, "system"}} {
		if text.from == nil {
			continue
		}
		ref := text.from.ConfigMapKeyRef
		sources = append(sources, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name},
			Items:                []corev1.KeyToPath{{Key: ref.Key, Path: text.path}},
		}})
	}
	return sources
}

// ledgerVolume is the volume that the ledger is on.
func ledgerVolume(run *v1alpha1.AgentRun) string {
	if run.Spec.Ledger != nil && run.Spec.Ledger.Volume != nil {
		return volumeLedger
	}
	return volumeWorkspace
}

func workspaceClaim(run *v1alpha1.AgentRun) string {
	if w := run.Spec.Workspace; w != nil && w.Volume != nil && w.Volume.ClaimName != "" {
		return w.Volume.ClaimName
	}
	return claimName(run, "")
}

func ledgerClaim(run *v1alpha1.AgentRun) string {
	if name := run.Spec.Ledger.Volume.ClaimName; name != "" {
		return name
	}
	return claimName(run, ledgerSuffix)
}

// desiredClaims are the claims that Belay makes for the run; existing ones, named by claimName, are not among them.
func desiredClaims(run *v1alpha1.AgentRun) []*corev1.PersistentVolumeClaim {
	var claims []*corev1.PersistentVolumeClaim
	var workspace v1alpha1.Volume
	if w := run.Spec.Workspace; w != nil && w.Volume != nil {
		workspace = *w.Volume
	}
	if workspace.ClaimName == "" {
		claims = append(claims, desiredClaim(run, workspaceClaim(run), &workspace))
	}
	if ledgerVolume(run) == volumeLedger && run.Spec.Ledger.Volume.ClaimName == "" {
		claims = append(claims, desiredClaim(run, ledgerClaim(run), run.Spec.Ledger.Volume))
	}
	return claims
}

func desiredClaim(run *v1alpha1.AgentRun, name string, volume *v1alpha1.Volume) *corev1.PersistentVolumeClaim {
	size := resource.MustParse(v1alpha1.DefaultVolumeSize)
	if volume.Size != nil {
		size = *volume.Size
	}
	mode := cmp.Or(volume.AccessMode, v1alpha1.DefaultAccessMode)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: run.Namespace, Name: name, Labels: runLabels(run)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(mode)},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		},
	}
	if volume.StorageClassName != "" {
		claim.Spec.StorageClassName = ptr.To(volume.StorageClassName)
	}
	if run.Spec.Ledger != nil && run.Spec.Ledger.Retention == v1alpha1.LedgerRetentionDelete {
		claim.OwnerReferences = []metav1.OwnerReference{ownerReference(run)}
	}
	return claim
}
