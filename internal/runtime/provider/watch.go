package provider

import (
	"context"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"belay.dev/belay/internal/runtime/failure"
)

const (
	// widening is what idle and progress windows gain with each further try at a leg.
	widening = 30 * time.Second
	// trailerGrace bounds the silence after the terminal marker: usage may still come, but the answer is complete.
	trailerGrace = 5 * time.Second
	// drainGrace bounds the wait for the end of the body after the stream's own end, which lets the connection be reused.
	drainGrace = 250 * time.Millisecond
	// errorBodyGrace bounds silence while the body of an error response is read: its status is known already.
	errorBodyGrace = 10 * time.Second
)

// watch owns the timers of one attempt. A timer that fires cancels the attempt's context with a *failure.Cause that tells
// which one it was. The idle window counts only while a read waits, so that a slow reader is never taken for a silent
// peer. Idle and progress timers are not set anew with each byte: when one fires it looks at what happened since, and
// sleeps for the rest.
type watch struct {
	clock    clock.WithDelayedExecution
	cancel   context.CancelCauseFunc
	timeouts Timeouts
	started  time.Time

	mu           sync.Mutex
	stopped      bool
	timers       []clock.Timer
	connect      clock.Timer
	firstByte    clock.Timer
	idle         clock.Timer
	progress     clock.Timer
	reading      bool
	readSince    time.Time
	lastByte     time.Time
	lastProgress time.Time
	lastEvent    string
	sentAt       time.Time
	sent         bool
	byteSeen     bool
	firstByteIn  time.Duration
}

func newWatch(c clock.WithDelayedExecution, cancel context.CancelCauseFunc, t Timeouts, try Try) *watch {
	wider := time.Duration(max(try.Number, 1)-1) * widening
	if t.Idle > 0 {
		t.Idle += wider
	}
	if t.Progress > 0 {
		t.Progress += wider
	}
	if try.Probe && (t.FirstByte <= 0 || t.FirstByte > ProbeFirstByte) {
		t.FirstByte = ProbeFirstByte
	}
	w := &watch{clock: c, cancel: cancel, timeouts: t, started: c.Now(), lastEvent: "none"}
	w.arm(t.Attempt, func() *failure.Cause {
		return failure.Causef(failure.Timeout, "the attempt was ended at its limit of %s", t.Attempt)
	})
	w.connect = w.arm(t.Connect, func() *failure.Cause {
		return failure.Causef(failure.Network, "no connection to the endpoint within %s", t.Connect)
	})
	return w
}

// arm starts a timer that ends the attempt, or returns nil for a disabled one. The caller holds mu or owns w alone.
func (w *watch) arm(d time.Duration, cause func() *failure.Cause) clock.Timer {
	if d <= 0 {
		return nil
	}
	t := w.clock.AfterFunc(d, func() { w.cancel(cause()) })
	w.timers = append(w.timers, t)
	return t
}

// stop ends all timers.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for _, t := range w.timers {
		t.Stop()
	}
}

func stopTimer(t clock.Timer) {
	if t != nil {
		t.Stop()
	}
}

// connected ends the connect timer. The first-byte timer starts here, and anew when the request was sent, so that a
// peer that never reads is found too.
func (w *watch) connected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	stopTimer(w.connect)
	w.armFirstByte()
}

func (w *watch) requestSent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent, w.sentAt = true, w.clock.Now()
	w.armFirstByte()
}

func (w *watch) armFirstByte() {
	if w.byteSeen {
		return
	}
	if w.firstByte != nil {
		w.firstByte.Reset(w.timeouts.FirstByte)
		return
	}
	w.firstByte = w.arm(w.timeouts.FirstByte, func() *failure.Cause {
		return failure.Causef(failure.Timeout, "no byte of an answer within %s", w.timeouts.FirstByte)
	})
}

// wasSent tells whether the whole request left, so that the provider may bill it.
func (w *watch) wasSent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

func (w *watch) beforeRead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading, w.readSince = true, w.clock.Now()
}

func (w *watch) afterRead(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reading = false
	if n == 0 {
		return
	}
	w.lastByte = w.clock.Now()
	if w.byteSeen {
		return
	}
	w.byteSeen = true
	from := w.sentAt
	if !w.sent {
		from = w.started
	}
	w.firstByteIn = w.lastByte.Sub(from)
	w.lastProgress = w.lastByte
	stopTimer(w.firstByte)
	w.idle = w.armCheck(w.timeouts.Idle, w.checkIdle)
	w.progress = w.armCheck(w.timeouts.Progress, w.checkProgress)
}

// armCheck starts a timer that asks check when it fires: for the cause to end the attempt with, or how long to sleep on.
// The caller holds mu.
func (w *watch) armCheck(d time.Duration, check func(now time.Time) (*failure.Cause, time.Duration)) clock.Timer {
	if d <= 0 {
		return nil
	}
	var t clock.Timer
	t = w.clock.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.stopped {
			return
		}
		if cause, rest := check(w.clock.Now()); cause != nil {
			w.cancel(cause)
		} else if rest > 0 {
			t.Reset(rest)
		}
	})
	w.timers = append(w.timers, t)
	return t
}

func (w *watch) checkIdle(now time.Time) (*failure.Cause, time.Duration) {
	window := w.timeouts.Idle
	if !w.reading {
		return nil, window
	}
	if rest := window - now.Sub(w.readSince); rest > 0 {
		return nil, rest
	}
	return failure.Causef(failure.StreamStalled, "no byte for %s (window %s); last event: %s",
		now.Sub(w.lastByte).Round(time.Millisecond), window, w.lastEvent), 0
}

func (w *watch) checkProgress(now time.Time) (*failure.Cause, time.Duration) {
	window := w.timeouts.Progress
	if window <= 0 {
		return nil, 0
	}
	if rest := window - now.Sub(w.lastProgress); rest > 0 {
		return nil, rest
	}
	return failure.Causef(failure.StreamStalled, "bytes arrived, but no content for %s (window %s); last event: %s",
		now.Sub(w.lastProgress).Round(time.Millisecond), window, w.lastEvent), 0
}

// event notes an event's name and whether it carried content.
func (w *watch) event(name []byte, progress bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(name) == 0 {
		w.lastEvent = "data"
	} else if string(name) != w.lastEvent {
		w.lastEvent = failure.CleanCode(string(name))
	}
	if progress {
		w.lastProgress = w.lastByte
	}
}

// shorten leaves only the idle timer, with at most the given window, and the attempt's limit.
func (w *watch) shorten(idle time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stopTimer(w.progress)
	w.timeouts.Progress = 0
	if w.timeouts.Idle > 0 && w.timeouts.Idle <= idle {
		return
	}
	w.timeouts.Idle = idle
	switch {
	case w.idle != nil:
		w.idle.Reset(idle)
	case w.byteSeen:
		w.idle = w.armCheck(idle, w.checkIdle)
	}
}

// watchedBody is a response body whose reads the timers see.
type watchedBody struct {
	body io.Reader
	w    *watch
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.w.beforeRead()
	n, err := b.body.Read(p)
	b.w.afterRead(n)
	return n, err
}
