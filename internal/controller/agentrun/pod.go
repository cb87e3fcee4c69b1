package agentrun

import (
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

// Containers of a run's pod.
const (
	containerInstall   = "toolbox-install"
	containerWorkspace = "workspace"
	containerRunner    = "runner"
)

// Identities of the containers. The workspace cannot read what only the runner may, and both share the group of the volumes.
const (
	runnerUID    int64 = 65532
	workspaceUID int64 = 65533
	sharedGID    int64 = 65532
)

// terminationGraceSeconds is what a runner has to bring its ledger to a record boundary, and a tool to end.
const terminationGraceSeconds int64 = 60

// serviceAccount is the account of every run's pod in a namespace.
const serviceAccount = "belay-runner"

// podName is the name of the pod of an epoch.
func podName(run *v1alpha1.AgentRun, epoch int64) string {
	return run.Name + "-" + strconv.FormatInt(epoch, 10)
}

// runLabels are on everything that belongs to a run.
func runLabels(run *v1alpha1.AgentRun) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":       "belay",
		"app.kubernetes.io/managed-by": "belay",
		v1alpha1.LabelRun:              run.Name,
		v1alpha1.LabelRunUID:           string(run.UID),
	}
}

// ownerReference makes what carries it go when the run goes.
func ownerReference(run *v1alpha1.AgentRun) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "AgentRun", Name: run.Name, UID: run.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
}

// desiredPod is the pod of the run's epoch. It meets the restricted Pod Security Standard.
func desiredPod(run *v1alpha1.AgentRun, ladder *v1alpha1.RouteLadder, image string) *corev1.Pod {
	epoch := run.Status.Epoch
	template := ptr.Deref(run.Spec.PodTemplate, v1alpha1.PodTemplate{})
	labels := maps.Clone(template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, runLabels(run))
	labels["app.kubernetes.io/component"] = "run"
	labels[v1alpha1.LabelEpoch] = strconv.FormatInt(epoch, 10)
	annotations := maps.Clone(template.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["kubectl.kubernetes.io/default-container"] = containerRunner

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: run.Namespace, Name: podName(run, epoch), Labels: labels, Annotations: annotations,
			Finalizers:      []string{v1alpha1.FinalizerEndRecorded},
			OwnerReferences: []metav1.OwnerReference{ownerReference(run)},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			ServiceAccountName:            serviceAccount,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(terminationGraceSeconds),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsGroup: ptr.To(sharedGID), FSGroup: ptr.To(sharedGID),
				FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
				SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			InitContainers:    initContainers(run, image),
			Containers:        []corev1.Container{runnerContainer(run, image)},
			Volumes:           podVolumes(run, ladder),
			NodeSelector:      template.NodeSelector,
			Tolerations:       template.Tolerations,
			Affinity:          template.Affinity,
			PriorityClassName: template.PriorityClassName,
			ImagePullSecrets:  template.ImagePullSecrets,
		},
	}
	if template.RuntimeClassName != "" {
		pod.Spec.RuntimeClassName = ptr.To(template.RuntimeClassName)
	}
	return pod
}

// initContainers are the toolbox's installation, the steps that prepare the workspace, and the workspace itself, which as
// an init container with restartPolicy Always is there before the runner and ends after it.
func initContainers(run *v1alpha1.AgentRun, image string) []corev1.Container {
	workspace := ptr.Deref(run.Spec.Workspace, v1alpha1.Workspace{})
	workspaceImage := workspace.Image
	if workspaceImage == "" {
		workspaceImage = image
	}
	containers := []corev1.Container{{
		Name: containerInstall, Image: image,
		Command:         []string{imageBin + "/toolbox", "install", "--to", binPath},
		SecurityContext: securityContext(workspaceUID, true),
		VolumeMounts:    []corev1.VolumeMount{{Name: volumeBin, MountPath: binPath}},
	}}
	proxy := proxyEnv(run)
	for i := range workspace.Setup {
		containers = append(containers, setupContainer(run, &workspace.Setup[i], workspaceImage, proxy))
	}
	sidecar := corev1.Container{
		Name: containerWorkspace, Image: workspaceImage, WorkingDir: workspacePath,
		RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Command: []string{toolboxPath, "serve", "--socket", socketPath, "--workspace", workspacePath,
			"--epoch", strconv.FormatInt(run.Status.Epoch, 10), "--run", string(run.UID),
			"--client-uid", strconv.FormatInt(runnerUID, 10)},
		Env:             append(workspaceEnv(), proxy...),
		SecurityContext: securityContext(workspaceUID, false),
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeBin, MountPath: binPath, ReadOnly: true},
			{Name: volumeSocket, MountPath: socketDir},
			{Name: volumeWorkspace, MountPath: workspacePath, SubPath: subPathWorkspace},
		},
	}
	if workspace.Resources != nil {
		sidecar.Resources = *workspace.Resources
	}
	return append(containers, sidecar)
}

// setupContainer runs a step once for the run: our own binary looks for the step's marker on the volume, so the step's
// command needs no shell and need not be repeatable.
func setupContainer(run *v1alpha1.AgentRun, step *v1alpha1.SetupStep, workspaceImage string, proxy []corev1.EnvVar) corev1.Container {
	image := step.Image
	if image == "" {
		image = workspaceImage
	}
	command := []string{toolboxPath, "setup", "--name", step.Name, "--marker", setupPath + "/" + step.Name, "--"}
	command = append(command, step.Command...)
	command = append(command, step.Args...)
	return corev1.Container{
		Name: "setup-" + step.Name, Image: image, WorkingDir: workspacePath, Command: command,
		Env:             append(append(workspaceEnv(), proxy...), stepEnv(step)...),
		EnvFrom:         stepEnvFrom(step),
		SecurityContext: securityContext(workspaceUID, false),
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeBin, MountPath: binPath, ReadOnly: true},
			{Name: volumeWorkspace, MountPath: workspacePath, SubPath: subPathWorkspace},
			{Name: volumeWorkspace, MountPath: setupPath, SubPath: subPathSetup + "/" + string(run.UID)},
		},
	}
}

func stepEnv(step *v1alpha1.SetupStep) []corev1.EnvVar {
	var env []corev1.EnvVar
	for _, v := range step.Env {
		e := corev1.EnvVar{Name: v.Name, Value: ptr.Deref(v.Value, "")}
		if from := v.ValueFrom; from != nil && from.SecretKeyRef != nil {
			e.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: from.SecretKeyRef.Name}, Key: from.SecretKeyRef.Key,
			}}
		} else if from != nil && from.ConfigMapKeyRef != nil {
			e.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: from.ConfigMapKeyRef.Name}, Key: from.ConfigMapKeyRef.Key,
			}}
		}
		env = append(env, e)
	}
	return env
}

func stepEnvFrom(step *v1alpha1.SetupStep) []corev1.EnvFromSource {
	var sources []corev1.EnvFromSource
	for _, from := range step.EnvFrom {
		source := corev1.EnvFromSource{Prefix: from.Prefix}
		if from.SecretRef != nil {
			source.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: from.SecretRef.Name}}
		}
		if from.ConfigMapRef != nil {
			source.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: from.ConfigMapRef.Name}}
		}
		sources = append(sources, source)
	}
	return sources
}

// runnerContainer holds the loop. It alone sees the ledger, the credentials and a token of the API server.
func runnerContainer(run *v1alpha1.AgentRun, image string) corev1.Container {
	fieldRef := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
	}
	runner := corev1.Container{
		Name: containerRunner, Image: image, Command: []string{imageBin + "/runner"},
		Env: append([]corev1.EnvVar{
			{Name: "BELAY_NAMESPACE", Value: run.Namespace},
			{Name: "BELAY_RUN", Value: run.Name},
			{Name: "BELAY_RUN_UID", Value: string(run.UID)},
			{Name: "BELAY_EPOCH", Value: strconv.FormatInt(run.Status.Epoch, 10)},
			{Name: "POD_NAME", ValueFrom: fieldRef("metadata.name")},
			{Name: "POD_UID", ValueFrom: fieldRef("metadata.uid")},
		}, proxyEnv(run)...),
		SecurityContext: securityContext(runnerUID, true),
		VolumeMounts: []corev1.VolumeMount{
			{Name: ledgerVolume(run), MountPath: ledgerPath, SubPath: subPathLedger},
			{Name: volumeCredentials, MountPath: credentialsPath, ReadOnly: true},
			{Name: volumeToken, MountPath: tokenPath, ReadOnly: true},
			{Name: volumeSocket, MountPath: socketDir},
			{Name: volumeTmp, MountPath: "/tmp"},
		},
	}
	if run.Spec.TaskFrom != nil || run.Spec.SystemFrom != nil {
		runner.VolumeMounts = append(runner.VolumeMounts, corev1.VolumeMount{Name: volumeTexts, MountPath: textsPath, ReadOnly: true})
	}
	if template := run.Spec.PodTemplate; template != nil && template.Resources != nil {
		runner.Resources = *template.Resources
	}
	return runner
}

// securityContext is what the restricted standard asks of a container, and more where nothing needs to be written.
func securityContext(uid int64, readOnlyRoot bool) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsUser: ptr.To(uid), RunAsNonRoot: ptr.To(true),
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(readOnlyRoot),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func workspaceEnv() []corev1.EnvVar {
	return []corev1.EnvVar{{Name: "HOME", Value: workspacePath + "/.home"}}
}

// proxyEnv is the proxy as programs look for it: some read the upper case, some the lower.
func proxyEnv(run *v1alpha1.AgentRun) []corev1.EnvVar {
	if run.Spec.PodTemplate == nil || run.Spec.PodTemplate.Proxy == nil {
		return nil
	}
	proxy := run.Spec.PodTemplate.Proxy
	var env []corev1.EnvVar
	for _, v := range []struct{ upper, lower, value string }{
		{"HTTP_PROXY", "http_proxy", proxy.HTTPProxy},
		{"HTTPS_PROXY", "https_proxy", proxy.HTTPSProxy},
		{"NO_PROXY", "no_proxy", proxy.NoProxy},
	} {
		if v.value != "" {
			env = append(env, corev1.EnvVar{Name: v.upper, Value: v.value}, corev1.EnvVar{Name: v.lower, Value: v.value})
		}
	}
	return env
}

// claimName is the name of the claim that Belay makes for a run; suffix tells apart the ledger's own.
func claimName(run *v1alpha1.AgentRun, suffix string) string {
	return fmt.Sprintf("belay-%s%s", run.UID, suffix)
}
