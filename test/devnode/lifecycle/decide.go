package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Decision is what to do next with a pod.
type Decision struct {
	// Start and Stop name containers.
	Start, Stop []string
	// Done says that nothing runs and nothing will.
	Done bool
	// Finishing says that the main containers have ended for good.
	Finishing bool
	// At is when to decide again though nothing happened; zero is never.
	At time.Time
}

// Decide says what to do next with a pod: init containers start one after the
// other, each after the one before it succeeded, a sidecar counting once it has
// started; then the main containers start together. Ended containers start
// again by their restart policy. At the end the main containers stop first and
// then the sidecars, last started first.
func Decide(spec *corev1.PodSpec, f Facts, now time.Time) Decision {
	d := &decider{spec: spec, facts: f, now: now}
	if f.Stopping || f.Reason != "" {
		d.stopAll()
		return d.Decision
	}
	if !f.VolumesReady {
		return d.Decision
	}
	if !d.initialise() {
		return d.Decision
	}
	d.runMains()
	return d.Decision
}

type decider struct {
	Decision
	spec  *corev1.PodSpec
	facts Facts
	now   time.Time
}

// initialise brings init containers forward and reports whether the main
// containers may run.
func (d *decider) initialise() bool {
	begun := d.mainsBegun()
	for i := range d.spec.InitContainers {
		c := &d.spec.InitContainers[i]
		s := d.facts.container(c.Name)
		if IsSidecar(c) {
			if d.mainsOver() {
				return true // nobody starts it again for an ending pod
			}
			if s.State == Waiting || s.State == Exited {
				d.start(c.Name, s)
			}
			if !s.Started && !begun {
				return false
			}
			continue
		}
		if begun {
			continue
		}
		switch {
		case s.State == Exited && s.Last.ExitCode == 0:
			continue
		case s.State == Exited && d.spec.RestartPolicy == corev1.RestartPolicyNever:
			d.stopAll()
		case s.State == Waiting, s.State == Exited:
			d.start(c.Name, s)
		}
		return false
	}
	return true
}

func (d *decider) mainsBegun() bool {
	for i := range d.spec.Containers {
		if s := d.facts.container(d.spec.Containers[i].Name); s.Attempted || s.State == Starting || s.State == Running {
			return true
		}
	}
	return false
}

// mainsOver says that every main container ended and none starts again.
func (d *decider) mainsOver() bool {
	for i := range d.spec.Containers {
		c := &d.spec.Containers[i]
		if s := d.facts.container(c.Name); s.State != Exited || restarts(d.spec, c, s) {
			return false
		}
	}
	return true
}

func restarts(spec *corev1.PodSpec, c *corev1.Container, s *Container) bool {
	policy := spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return s.Last != nil && s.Last.ExitCode != 0
	case corev1.RestartPolicyAlways:
		return true
	}
	return true
}

func (d *decider) runMains() {
	if d.mainsOver() {
		d.stopAll()
		return
	}
	for i := range d.spec.Containers {
		c := &d.spec.Containers[i]
		s := d.facts.container(c.Name)
		if s.State == Waiting || s.State == Exited && restarts(d.spec, c, s) {
			d.start(c.Name, s)
		}
	}
}

// start starts a container now or when its back-off is over.
func (d *decider) start(name string, s *Container) {
	if s.RestartAt.After(d.now) {
		if d.At.IsZero() || s.RestartAt.Before(d.At) {
			d.At = s.RestartAt
		}
		return
	}
	d.Start = append(d.Start, name)
}

// stopAll stops what still runs, in the order of a pod's end.
func (d *decider) stopAll() {
	d.Start, d.At, d.Finishing = nil, time.Time{}, true
	live := func(c *corev1.Container) bool {
		s := d.facts.container(c.Name)
		return s.State == Starting || s.State == Running
	}
	for i := range d.spec.Containers {
		if c := &d.spec.Containers[i]; live(c) {
			d.Stop = append(d.Stop, c.Name)
		}
	}
	for i := range d.spec.InitContainers {
		if c := &d.spec.InitContainers[i]; live(c) && !IsSidecar(c) {
			d.Stop = append(d.Stop, c.Name)
		}
	}
	if len(d.Stop) > 0 {
		return
	}
	for i := len(d.spec.InitContainers) - 1; i >= 0; i-- {
		if c := &d.spec.InitContainers[i]; live(c) {
			d.Stop = append(d.Stop, c.Name)
			return
		}
	}
	d.Done = true
}

// The kubelet's back-off between restarts of a container.
const (
	backOffBase  = 10 * time.Second
	backOffMax   = 300 * time.Second
	backOffReset = 10 * time.Minute
)

// BackOff returns how long a container that ended waits for its next start,
// counted from its end: nothing the first time, then 10 s doubling to 5 min.
// starts is how often it was started, previous the wait before the last start,
// and ran how long it ran; ten minutes of running start the count anew.
func BackOff(starts int32, previous, ran time.Duration) time.Duration {
	switch {
	case starts <= 1 || ran >= backOffReset:
		return 0
	case previous == 0:
		return backOffBase
	}
	return min(previous*2, backOffMax)
}
