package provider

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"belay.dev/belay/internal/runtime/route"
	"belay.dev/belay/internal/runtime/sse"
)

// Options configure a Client. The zero value is usable.
type Options struct {
	// Clock drives the timers. Default: the real one.
	Clock clock.WithDelayedExecution
	// Limits bound one stream. Zero fields take the defaults of package sse.
	Limits sse.Limits
	// UserAgent is sent with each request. Default "belay".
	UserAgent string
	// DialContext opens connections. Default: a net.Dialer that also checks the loopback rule after name lookup; a
	// replacement, as tests use it, has to check that itself.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// RootCAs are the roots to trust. Default: the system's. A target's CABundle is added to them.
	RootCAs *x509.CertPool
}

// Client sends attempts. A process has one; it owns a transport for each endpoint and trust bundle, whose idle
// connections are kept for the next turn.
//
// Requests with https honour HTTPS_PROXY and NO_PROXY of the process, read once, as package net/http documents; requests
// with plain http never use a proxy, since the credential would pass it in the clear. Redirects are never followed, and
// compressed answers are never asked for.
type Client struct {
	dialects  map[route.Dialect]Dialect
	clock     clock.WithDelayedExecution
	limits    sse.Limits
	userAgent string
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	roots     *x509.CertPool

	mu         sync.Mutex
	transports map[transportKey]*http.Transport
}

type transportKey struct {
	baseURL  string
	caBundle [sha256.Size]byte
}

// NewClient returns a client that speaks the dialects. Close it when done.
func NewClient(options Options, dialects ...Dialect) *Client {
	c := &Client{
		dialects:   make(map[route.Dialect]Dialect, len(dialects)),
		clock:      options.Clock,
		limits:     options.Limits,
		userAgent:  options.UserAgent,
		dial:       options.DialContext,
		roots:      options.RootCAs,
		transports: map[transportKey]*http.Transport{},
	}
	for _, d := range dialects {
		c.dialects[d.Name()] = d
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	if c.userAgent == "" {
		c.userAgent = "belay"
	}
	return c
}

// Close closes idle connections. Attempts that are under way are ended by their contexts.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, t := range c.transports {
		t.CloseIdleConnections()
		delete(c.transports, key)
	}
}

const (
	// maxResponseHeaderBytes is far above what any provider sends.
	maxResponseHeaderBytes = 256 << 10
	// idleConnection is how long a connection waits for the next turn.
	idleConnection = 90 * time.Second
	// readIdlePing and pingTimeout find a dead HTTP/2 connection that no timer of a single attempt would tell from a slow
	// provider.
	readIdlePing = 30 * time.Second
	pingTimeout  = 15 * time.Second
	// dialLimit ends a dial that its attempt has given up. The attempt's own timer is Timeouts.Connect.
	dialLimit = 30 * time.Second
	// maxTransports bounds what ladder edits leave behind; beyond it, all are dropped and made anew.
	maxTransports = 64
)

// transport returns the transport for the target, made at its first use.
func (c *Client) transport(target Target) (*http.Transport, error) {
	key := transportKey{
		baseURL:  target.Route.BaseURL,
		caBundle: sha256.Sum256(target.CABundle),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.transports[key]; ok {
		return t, nil
	}
	roots, err := c.trust(target)
	if err != nil {
		return nil, err
	}
	if len(c.transports) >= maxTransports {
		for k, t := range c.transports {
			t.CloseIdleConnections()
			delete(c.transports, k)
		}
	}
	t := &http.Transport{
		Proxy:                  secureProxy,
		DialContext:            c.dialer(target),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    dialLimit,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        idleConnection,
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: readIdlePing, PingTimeout: pingTimeout},
	}
	c.transports[key] = t
	return t, nil
}

func (c *Client) trust(target Target) (*x509.CertPool, error) {
	if len(target.CABundle) == 0 {
		return c.roots, nil
	}
	var roots *x509.CertPool
	if c.roots != nil {
		roots = c.roots.Clone()
	} else if system, err := x509.SystemCertPool(); err == nil {
		roots = system
	} else {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(target.CABundle) {
		return nil, misconfigured("the caBundle of leg %q's provider has no PEM certificate", target.Leg)
	}
	return roots, nil
}

func secureProxy(req *http.Request) (*url.URL, error) {
	if req.URL.Scheme != "https" {
		return nil, nil
	}
	return http.ProxyFromEnvironment(req)
}

// dialer returns the function that opens connections. For plain http that is allowed to loopback only, it checks the
// address after the name was resolved: localhost is what the resolver says it is.
func (c *Client) dialer(target Target) func(context.Context, string, string) (net.Conn, error) {
	if c.dial != nil {
		return c.dial
	}
	d := &net.Dialer{Timeout: dialLimit, KeepAlive: 30 * time.Second}
	u, err := url.Parse(target.Route.BaseURL)
	if err == nil && u.Scheme == "http" && isLoopback(u.Hostname()) {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			addr, err := netip.ParseAddrPort(address)
			if err != nil || !addr.Addr().Unmap().IsLoopback() {
				return misconfigured("plain http to %q would leave this machine", u.Hostname())
			}
			return nil
		}
	}
	return d.DialContext
}
