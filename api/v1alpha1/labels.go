package v1alpha1

// Labels of a run's pods and claims.
const (
	// LabelRun is the name of the run.
	LabelRun = GroupName + "/run"
	// LabelRunUID is the UID of the run; it tells a run from an earlier one of the same name.
	LabelRunUID = GroupName + "/run-uid"
	// LabelEpoch is the epoch of a pod, in decimal.
	LabelEpoch = GroupName + "/epoch"
)

// FinalizerEndRecorded keeps a run's pod until the run's status says how the pod ended.
const FinalizerEndRecorded = GroupName + "/end-recorded"

// Field managers, one for each writer.
const (
	FieldManagerAgentRun       = "belay-agentrun"
	FieldManagerRouteLadder    = "belay-routeladder"
	FieldManagerProviderHealth = "belay-providerhealth"
	FieldManagerRunner         = "belay-runner"
)
