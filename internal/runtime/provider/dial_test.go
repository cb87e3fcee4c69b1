package provider

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"belay.dev/belay/internal/runtime/failure"
	"belay.dev/belay/internal/runtime/route"
)

func TestANameThatClaimsToBeLocalIsDialedOnThisMachineOnly(t *testing.T) {
	client := NewClient(Options{})
	defer client.Close()
	dial := client.dialer(Target{Route: route.Route{BaseURL: "http://localhost/v1"}, Insecure: InsecureLoopback})
	// 192.0.2.1 is a documentation address: what a resolver that lies about localhost could answer.
	_, err := dial(t.Context(), "tcp", "192.0.2.1:80")
	var cause *failure.Cause
	if !errors.As(err, &cause) || cause.Sub != failure.SubConfiguration {
		t.Errorf("got %v", err)
	}
}

func TestPlainHTTPNeverPassesAProxy(t *testing.T) {
	plain, err := http.NewRequest(http.MethodPost, "http://vllm.models.svc/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HTTP_PROXY", "http://proxy.example:3128")
	if proxy, err := secureProxy(plain); proxy != nil || err != nil {
		t.Errorf("got %v, %v", proxy, err)
	}
}

func TestTransportsOfForgottenLaddersAreDropped(t *testing.T) {
	client := NewClient(Options{})
	defer client.Close()
	for i := range 1000 {
		target := Target{Route: route.Route{BaseURL: "https://h.example/" + time.Duration(i).String()}}
		if _, err := client.transport(target); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(client.transports); n > maxTransports {
		t.Errorf("%d transports are kept, want at most %d", n, maxTransports)
	}
}
