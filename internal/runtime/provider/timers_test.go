package provider_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/provider"
)

// The tests of this file run in a bubble of testing/synctest: time passes only when everyone waits, so every duration is
// exact, and a window of minutes takes no time.

// inBubble runs one attempt against a peer in memory. The peer has read the request; when it returns, the connection is
// closed.
func inBubble(t *testing.T, target provider.Target, try provider.Try, peer func(c net.Conn), check func(provider.Attempt)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client := pipeClient(t, peer)
		defer client.Close()
		check(client.Do(t.Context(), target, prepare(t, client, target), try))
	})
}

func pipeClient(t *testing.T, peer func(c net.Conn)) *provider.Client {
	var peers sync.WaitGroup
	t.Cleanup(peers.Wait) // after the client was closed
	return newClient(t, provider.Options{DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		peers.Go(func() {
			defer func() { _ = theirs.Close() }()
			if readRequest(theirs) == nil {
				peer(theirs)
			}
		})
		return ours, nil
	}})
}

func say(c net.Conn, text string) { _, _ = io.WriteString(c, text) }

// pass lets time pass in the bubble.
func pass(d time.Duration) { <-time.After(d) }

// hang waits until the other side closes.
func hang(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

var inMemory = targetAt("http://127.0.0.1/v1")

func wantFailure(t *testing.T, got provider.Attempt, kind failure.Kind, after time.Duration, message string) {
	t.Helper()
	if got.Failure == nil || got.Answer != nil {
		t.Fatalf("got an answer: %+v", got)
	}
	if got.Failure.Kind != kind || got.Duration != after || got.Failure.Message != message {
		t.Errorf("got %s after %s: %s\nwant %s after %s: %s", got.Failure.Kind, got.Duration, got.Failure.Message, kind, after, message)
	}
}

func TestAConnectionThatIsNotMadeInTimeIsANetworkFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, provider.Options{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		defer client.Close()
		got := attemptAt(t.Context(), t, client, inMemory)
		wantFailure(t, got, failure.Network, 10*time.Second, "no connection to the endpoint within 10s")
		if got.Usage != (provider.Usage{}) {
			t.Errorf("charged %+v for a request that was never sent", got.Usage)
		}
	})
}

func TestAPeerThatNeverReadsTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var theirs net.Conn
		client := newClient(t, provider.Options{DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, peer := net.Pipe()
			theirs = peer
			return ours, nil
		}})
		defer client.Close()
		got := attemptAt(t.Context(), t, client, inMemory)
		wantFailure(t, got, failure.Timeout, 120*time.Second, "no byte of an answer within 2m0s")
		_ = theirs.Close()
	})
}

func TestAPeerThatNeverAnswersTimesOut(t *testing.T) {
	for _, head := range []string{"", streamHead} {
		inBubble(t, inMemory, provider.Try{Number: 1}, func(c net.Conn) { say(c, head); hang(c) }, func(got provider.Attempt) {
			wantFailure(t, got, failure.Timeout, 120*time.Second, "no byte of an answer within 2m0s")
			if got.FirstByte != 0 || got.Usage.InputTokens == 0 || !got.Usage.Estimated {
				t.Errorf("first byte %s, usage %+v", got.FirstByte, got.Usage)
			}
		})
	}
}

func TestAProbeHasAMinuteToTheFirstByte(t *testing.T) {
	inBubble(t, inMemory, provider.Try{Number: 1, Probe: true}, hang, func(got provider.Attempt) {
		wantFailure(t, got, failure.Timeout, time.Minute, "no byte of an answer within 1m0s")
	})
	short := inMemory
	short.Timeouts.FirstByte = 5 * time.Second
	inBubble(t, short, provider.Try{Number: 1, Probe: true}, hang, func(got provider.Attempt) {
		wantFailure(t, got, failure.Timeout, 5*time.Second, "no byte of an answer within 5s")
	})
}

// Row 161 of the error corpus: no byte at all.
func TestRow161SilenceInTheStreamIsAStallAndWidensWithEachTry(t *testing.T) {
	for try, window := range map[int]string{0: "2m0s", 1: "2m0s", 2: "2m30s", 3: "3m0s"} {
		want, _ := time.ParseDuration(window)
		inBubble(t, inMemory, provider.Try{Number: try}, func(c net.Conn) {
			pass(7 * time.Second)
			say(c, streamHead+chunk(deltaEvent))
			hang(c)
		}, func(got provider.Attempt) {
			wantFailure(t, got, failure.StreamStalled, 7*time.Second+want, "no byte for "+window+" (window "+window+"); last event: data")
			if got.FirstByte != 7*time.Second || got.Partial != "Hello" {
				t.Errorf("first byte %s, partial %q", got.FirstByte, got.Partial)
			}
		})
	}
}

// Row 160 of the error corpus: bytes flow, but none of them is content.
func TestRow160CommentsAndPingsAreNoProgress(t *testing.T) {
	for _, tt := range []struct{ name, filler, event string }{
		{"comments", ": PROCESSING\n\n", "data"},
		{"pings", "event: ping\ndata: {}\n\n", "ping"},
		{"empty deltas", `data: {"choices":[{"index":0,"delta":{"content":""}}]}` + "\n\n", "data"},
	} {
		inBubble(t, inMemory, provider.Try{Number: 1}, func(c net.Conn) {
			say(c, streamHead+chunk(deltaEvent))
			for err := error(nil); err == nil; _, err = io.WriteString(c, chunk(tt.filler)) {
				pass(10 * time.Second)
			}
		}, func(got provider.Attempt) {
			wantFailure(t, got, failure.StreamStalled, 300*time.Second,
				"bytes arrived, but no content for 5m0s (window 5m0s); last event: "+tt.event)
		})
	}
}

func TestTheProgressWindowWidensWithEachTry(t *testing.T) {
	inBubble(t, inMemory, provider.Try{Number: 3}, func(c net.Conn) {
		say(c, streamHead+chunk(deltaEvent))
		for err := error(nil); err == nil; _, err = io.WriteString(c, chunk(": ping\n\n")) {
			pass(7 * time.Second)
		}
	}, func(got provider.Attempt) {
		wantFailure(t, got, failure.StreamStalled, 360*time.Second, "bytes arrived, but no content for 6m0s (window 6m0s); last event: data")
	})
}

func TestASlowAnswerThatMakesProgressIsNotCut(t *testing.T) {
	inBubble(t, inMemory, provider.Try{Number: 1}, func(c net.Conn) {
		say(c, streamHead)
		for range 4 {
			pass(100 * time.Second)
			say(c, chunk(": ping\n\n"))
			pass(119 * time.Second)
			say(c, chunk(deltaEvent))
		}
		say(c, chunk(finishEvent+doneEvent)+lastChunk)
	}, func(got provider.Attempt) {
		if got.Failure != nil || got.Answer.Text() != "HelloHelloHelloHello" {
			t.Errorf("got %+v", got.Failure)
		}
	})
}

func TestAnAttemptEndsAtItsLimit(t *testing.T) {
	inBubble(t, inMemory, provider.Try{Number: 1}, func(c net.Conn) {
		say(c, streamHead)
		for err := error(nil); err == nil; _, err = io.WriteString(c, chunk(deltaEvent)) {
			pass(10 * time.Second)
		}
	}, func(got provider.Attempt) {
		wantFailure(t, got, failure.Timeout, 1200*time.Second, "the attempt was ended at its limit of 20m0s")
	})
}

func TestAZeroDisablesATimer(t *testing.T) {
	patient := inMemory
	patient.Timeouts = provider.Timeouts{}
	inBubble(t, patient, provider.Try{Number: 3}, func(c net.Conn) {
		pass(24 * time.Hour)
		say(c, streamHead+chunk(deltaEvent))
		pass(24 * time.Hour)
		say(c, chunk(finishEvent+doneEvent)+lastChunk)
	}, func(got provider.Attempt) {
		if got.Failure != nil || got.Duration != 48*time.Hour {
			t.Errorf("got %+v after %s", got.Failure, got.Duration)
		}
	})
}

func TestAServerThatHangsAfterTheTerminalMarkerCostsNoAnswer(t *testing.T) {
	for _, tt := range []struct {
		name, events string
		after        time.Duration
		estimated    bool
	}{
		{"after the finish reason", deltaEvent + finishEvent, 5 * time.Second, true},
		{"after the usage", deltaEvent + finishEvent + usageEvent, 5 * time.Second, false},
		{"after [DONE]", wholeAnswer, 250 * time.Millisecond, false},
	} {
		inBubble(t, inMemory, provider.Try{Number: 1}, func(c net.Conn) { say(c, streamHead+chunk(tt.events)); hang(c) }, func(got provider.Attempt) {
			if got.Failure != nil || got.Answer.Text() != "Hello" {
				t.Fatalf("%s: got %+v", tt.name, got.Failure)
			}
			if got.Duration != tt.after || got.Usage.Estimated != tt.estimated {
				t.Errorf("%s: after %s, usage %+v", tt.name, got.Duration, got.Usage)
			}
		})
	}
}

func TestAnErrorStatusIsKnownEvenIfItsBodyHangs(t *testing.T) {
	inBubble(t, inMemory, provider.Try{Number: 1}, func(c net.Conn) {
		say(c, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 100\r\n\r\n{\"error\":")
		hang(c)
	}, func(got provider.Attempt) {
		if got.Failure == nil || got.Failure.Kind != failure.RateLimited || got.Duration != 10*time.Second {
			t.Errorf("got %+v after %s", got.Failure, got.Duration)
		}
	})
}

func TestCancellationClosesTheConnectionAtOnce(t *testing.T) {
	shutdown := errors.New("the runner was asked to stop")
	for _, tt := range []struct{ name, said string }{
		{"before the answer", ""},
		{"in the answer's header", streamHead},
		{"in the stream", streamHead + chunk(deltaEvent)},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var closedAfter time.Duration
			client := pipeClient(t, func(c net.Conn) {
				say(c, tt.said)
				hang(c)
				closedAfter = time.Since(start)
			})
			defer client.Close()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(3*time.Second, func() { cancel(shutdown) })
			got := attemptAt(ctx, t, client, inMemory)
			wantFailure(t, got, failure.Cancelled, 3*time.Second, "the attempt was cancelled: the runner was asked to stop")
			synctest.Wait()
			if closedAfter != 3*time.Second {
				t.Errorf("%s: the connection was closed after %s, want 3s", tt.name, closedAfter)
			}
		})
	}
}

func TestTheRunsOwnDeadlineIsNoFaultOfTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := pipeClient(t, hang)
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		got := attemptAt(ctx, t, client, inMemory)
		if got.Failure == nil || got.Failure.Kind != failure.Cancelled || got.Duration != 2*time.Second {
			t.Errorf("got %+v", got.Failure)
		}
	})
}

func TestAStallNamesNoTextOfTheProvider(t *testing.T) {
	inBubble(t, inMemory, provider.Try{Number: 1}, func(c net.Conn) {
		say(c, streamHead+chunk("event: the user wrote hunter2\ndata: {}\n\n"))
		hang(c)
	}, func(got provider.Attempt) {
		if strings.Contains(got.Failure.Message, "hunter2") {
			t.Errorf("got %q", got.Failure.Message)
		}
	})
}
