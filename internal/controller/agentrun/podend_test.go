package agentrun

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"belay.dev/belay/api/v1alpha1"
)

func TestTheBackoffGrowsWithoutProgressAndStartsAgainWithIt(t *testing.T) {
	turns := func(turns ...int32) []v1alpha1.EpochRecord {
		var records []v1alpha1.EpochRecord
		for _, turn := range turns {
			records = append(records, v1alpha1.EpochRecord{End: v1alpha1.EpochFailed, Turn: ptr.To(turn)})
		}
		return records
	}
	ended := func(records []v1alpha1.EpochRecord, end v1alpha1.EpochEnd) []v1alpha1.EpochRecord {
		records[len(records)-1].End = end
		return records
	}
	tests := []struct {
		name    string
		records []v1alpha1.EpochRecord
		want    time.Duration
	}{
		{"no pod yet", nil, 0},
		{"the first pod did nothing", turns(0), time.Second},
		{"the second, too", turns(0, 0), 10 * time.Second},
		{"three", turns(0, 0, 0), 20 * time.Second},
		{"four", turns(0, 0, 0, 0), 40 * time.Second},
		{"five", turns(0, 0, 0, 0, 0), 80 * time.Second},
		{"six", turns(0, 0, 0, 0, 0, 0), 160 * time.Second},
		{"seven", turns(0, 0, 0, 0, 0, 0, 0), 300 * time.Second},
		{"eight", turns(0, 0, 0, 0, 0, 0, 0, 0), 300 * time.Second},
		{"ten, of which the first is forgotten next", turns(0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 300 * time.Second},
		{"the first pod made a turn", turns(1), time.Second},
		{"the last pod made a turn after four that did nothing", turns(0, 0, 0, 0, 1), time.Second},
		{"two did nothing after a turn", turns(3, 3, 3), 10 * time.Second},
		{"a pod that parked in order", ended(turns(0, 0, 0), v1alpha1.EpochParked), 10 * time.Second},
		{"a pod that was suspended", ended(turns(0, 0, 0), v1alpha1.EpochSuspended), time.Second},
		{"a fruitless pod after a park", append(ended(turns(0, 0, 0), v1alpha1.EpochParked), turns(0)...), time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := backoff(test.records); got != test.want {
				t.Errorf("the wait is %s, want %s", got, test.want)
			}
		})
	}
}

func TestTheClustersDoingIsToldFromTheRunsOwn(t *testing.T) {
	disruption := []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet"}}
	tests := []struct {
		name   string
		status corev1.PodStatus
		want   bool
	}{
		{"a crash", corev1.PodStatus{Phase: corev1.PodFailed}, false},
		{"preemption", corev1.PodStatus{Phase: corev1.PodFailed, Conditions: disruption}, true},
		{"eviction by node pressure", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Conditions: disruption}, true},
		{"eviction because the pod exceeded its own limit", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "Usage of EmptyDir volume exceeds the limit"}, false},
		{"a node that shuts down", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated"}, true},
		{"a node without room", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"}, true},
		{"a node that refused the pod", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError"}, true},
		{"a condition that does not hold", corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse}}}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := wasDisrupted(&corev1.Pod{Status: test.status}); got != test.want {
				t.Errorf("disrupted: %t, want %t", got, test.want)
			}
		})
	}
}

func TestTheEndOfAPodIsExplained(t *testing.T) {
	terminated := func(name string, code int32, reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}}
	}
	tests := []struct {
		name   string
		status corev1.PodStatus
		want   string
	}{
		{"a failed setup step, without what it printed",
			corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{terminated("setup-clone", 128, "Error", "fatal: token ghp_x")}},
			"container setup-clone ended with exit code 128"},
		{"a runner out of memory",
			corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{terminated("runner", 137, "OOMKilled", "")}},
			"container runner ended with exit code 137 (OOMKilled)"},
		{"a runner's own words",
			corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{terminated("runner", 13, "Error", "LedgerCorrupt in epoch 2")}},
			"container runner ended with exit code 13: LedgerCorrupt in epoch 2"},
		{"a workspace that was killed after the runner ended well",
			corev1.PodStatus{
				InitContainerStatuses: []corev1.ContainerStatus{terminated("workspace", 143, "Error", "")},
				ContainerStatuses:     []corev1.ContainerStatus{terminated("runner", 0, "Completed", "")},
			}, ""},
		{"an eviction", corev1.PodStatus{Reason: "Evicted", Message: "low on memory"}, "Evicted: low on memory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := endMessage(&corev1.Pod{Status: test.status}); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestTruncatingKeepsCharactersWhole(t *testing.T) {
	long := strings.Repeat("é", 400) // 800 bytes
	got := truncate(long, maxRecordMessage)
	if len(got) > maxRecordMessage || !utf8.ValidString(got) || !strings.HasSuffix(got, "é…") {
		t.Errorf("got %d bytes ending in %q", len(got), got[len(got)-6:])
	}
	if got := truncate("short", 512); got != "short" {
		t.Errorf("got %q", got)
	}
}
