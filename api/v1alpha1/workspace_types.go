package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Workspace is the container in which tools work, and its volume.
type Workspace struct {
	// image is the image that tools find around them: compilers, a shell, a package manager. Unset means an image without
	// any of it, in which read, write, edit, grep and glob work and shell does not exist.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// volume is the volume at /workspace.
	// +optional
	Volume *Volume `json:"volume,omitempty"`

	// setup are commands that prepare the workspace, each run to success once for a run, in order, before the first turn.
	// Later pods of the run skip what has succeeded.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	Setup []SetupStep `json:"setup,omitempty"`

	// resources are the compute resources of the workspace container. They apply from the next pod on.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// AccessMode says how a volume may be mounted.
// +kubebuilder:validation:Enum=ReadWriteOncePod;ReadWriteOnce;ReadWriteMany
type AccessMode string

const (
	// ReadWriteOncePod is for one pod at a time; only CSI drivers support it.
	ReadWriteOncePod AccessMode = "ReadWriteOncePod"
	// ReadWriteOnce is for one node at a time.
	ReadWriteOnce AccessMode = "ReadWriteOnce"
	// ReadWriteMany is for many nodes.
	ReadWriteMany AccessMode = "ReadWriteMany"
)

// Volume is a PersistentVolumeClaim that Belay makes for the run, or an existing one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.claimName) || !(has(self.size) || has(self.storageClassName) || has(self.accessMode))",message="claimName names an existing claim; size, storageClassName and accessMode cannot be set with it",fieldPath=".claimName"
type Volume struct {
	// size is the size of the claim. Defaults to 1Gi.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName is the claim's storage class. Unset means the cluster's default class.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName string `json:"storageClassName,omitempty"`

	// accessMode is the claim's access mode. ReadWriteOncePod keeps a second pod from writing, but needs a CSI driver; a
	// class without one wants ReadWriteOnce. Defaults to ReadWriteOncePod.
	// +optional
	AccessMode AccessMode `json:"accessMode,omitempty"`

	// claimName is the name of an existing claim in the run's namespace to use instead.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	ClaimName string `json:"claimName,omitempty"`
}

// SetupStep is one command that prepares the workspace. Its secrets are its own: no later container sees them.
type SetupStep struct {
	// name is the step's name, unique in the run.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`

	// image is the step's image. Defaults to the workspace's image.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// command is the program and its first arguments; an image's entry point is not used. It runs in /workspace.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=8192
	Command []string `json:"command,omitempty"`

	// args are appended to command.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=8192
	Args []string `json:"args,omitempty"`

	// env are the step's environment variables; values may come from Secrets and ConfigMaps.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Env []EnvVar `json:"env,omitempty"`

	// envFrom takes all keys of Secrets and ConfigMaps as environment variables.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	EnvFrom []EnvFromSource `json:"envFrom,omitempty"`
}

// EnvVar is one environment variable, spelt as in a pod.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.value) && has(self.valueFrom))",message="value and valueFrom exclude each other",fieldPath=".valueFrom"
type EnvVar struct {
	// name is the variable's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z][-._a-zA-Z0-9]*$`
	Name string `json:"name,omitempty"`

	// value is the variable's value. Defaults to the empty string.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value *string `json:"value,omitempty"`

	// valueFrom reads the value when the pod starts.
	// +optional
	ValueFrom *EnvVarSource `json:"valueFrom,omitempty"`
}

// EnvVarSource is where the value of an environment variable comes from.
//
// +kubebuilder:validation:ExactlyOneOf=secretKeyRef;configMapKeyRef
type EnvVarSource struct {
	// secretKeyRef is a key of a Secret in the run's namespace.
	// +optional
	SecretKeyRef *SecretKeyReference `json:"secretKeyRef,omitempty"`

	// configMapKeyRef is a key of a ConfigMap in the run's namespace.
	// +optional
	ConfigMapKeyRef *ConfigMapKeyReference `json:"configMapKeyRef,omitempty"`
}

// EnvFromSource is an object all of whose keys become environment variables.
//
// +kubebuilder:validation:ExactlyOneOf=secretRef;configMapRef
type EnvFromSource struct {
	// prefix is put before every key.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z][-._a-zA-Z0-9]*$`
	Prefix string `json:"prefix,omitempty"`

	// secretRef is a Secret in the run's namespace.
	// +optional
	SecretRef *ObjectNameReference `json:"secretRef,omitempty"`

	// configMapRef is a ConfigMap in the run's namespace.
	// +optional
	ConfigMapRef *ObjectNameReference `json:"configMapRef,omitempty"`
}

// ObjectNameReference names an object of the run's namespace.
type ObjectNameReference struct {
	// name is the object's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// PodTemplate is what a run may add to its pods. It is a list of allowed fields, not a pod: what makes a pod safe and
// singular is not for a run to change.
//
// +kubebuilder:validation:XValidation:rule="!has(self.labels) || self.labels.all(k, !k.startsWith('agents.belay.dev/') && !k.startsWith('app.kubernetes.io/'))",message="labels: the prefixes agents.belay.dev/ and app.kubernetes.io/ are Belay's own",fieldPath=".labels"
// +kubebuilder:validation:XValidation:rule="!has(self.annotations) || self.annotations.all(k, !k.startsWith('agents.belay.dev/'))",message="annotations: the prefix agents.belay.dev/ is Belay's own",fieldPath=".annotations"
type PodTemplate struct {
	// labels are added to the pod's.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are added to the pod's.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`

	// nodeSelector restricts the nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations allow tainted nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity prefers or requires nodes.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// runtimeClassName runs the pod in another container runtime, for example a sandboxing one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName string `json:"runtimeClassName,omitempty"`

	// priorityClassName is the pod's priority class.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// imagePullSecrets are Secrets for the images' registries.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// proxy is the proxy of the pod's own network, for runner and workspace.
	// +optional
	Proxy *Proxy `json:"proxy,omitempty"`

	// resources are the compute resources of the runner container.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// Proxy is set as the usual environment variables, in upper and lower case.
//
// +kubebuilder:validation:MinProperties=1
type Proxy struct {
	// httpProxy is HTTP_PROXY.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	HTTPProxy string `json:"httpProxy,omitempty"`

	// httpsProxy is HTTPS_PROXY.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	HTTPSProxy string `json:"httpsProxy,omitempty"`

	// noProxy is NO_PROXY.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	NoProxy string `json:"noProxy,omitempty"`
}
