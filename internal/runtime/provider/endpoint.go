package provider

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"belay.dev/belay/internal/runtime/failure"
)

// endpointURL joins the target's base URL and a dialect's path, and holds the rule for plain http. Its errors are
// configuration faults of the leg: no request is sent.
func endpointURL(target Target, path string) (*url.URL, error) {
	u, err := url.Parse(target.Route.BaseURL)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return nil, misconfigured("the provider's baseURL of leg %q is not an absolute URL", target.Leg)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, misconfigured("the provider's baseURL of leg %q must have no user, query or fragment", target.Leg)
	}
	switch u.Scheme {
	case "https":
	case "http":
		if err := plainHTTPAllowed(target, u.Hostname()); err != nil {
			return nil, err
		}
	default:
		return nil, misconfigured("the provider's baseURL of leg %q must begin with https://", target.Leg)
	}
	if u, err = url.Parse(strings.TrimRight(target.Route.BaseURL, "/") + path); err != nil {
		return nil, misconfigured("the provider's baseURL of leg %q takes no path", target.Leg)
	}
	return u, nil
}

func plainHTTPAllowed(target Target, host string) error {
	switch target.Insecure {
	case InsecureLoopback:
		if isLoopback(host) {
			return nil
		}
		return misconfigured("the provider of leg %q allows plain http to loopback addresses only; use https", target.Leg)
	case InsecureCluster:
		if isLoopback(host) || isClusterLocal(host) {
			return nil
		}
		return misconfigured("the provider of leg %q allows plain http to loopback addresses and cluster-local names only; use https, or a name such as <service>.<namespace>.svc", target.Leg)
	case InsecureForbid:
	}
	return misconfigured("the provider of leg %q forbids plain http; use https, or set insecure to Loopback or Cluster", target.Leg)
}

func misconfigured(format string, args ...any) error {
	return &failure.Cause{Kind: failure.Network, Sub: failure.SubConfiguration, Message: fmt.Sprintf(format, args...)}
}

// isLoopback takes localhost and loopback literals. That the name localhost leads to one is checked when it is dialed.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// isClusterLocal takes <service>, <service>.<namespace>.svc and names under cluster.local. A two-label name such as
// api.example could be public, and is none.
func isClusterLocal(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return false
	}
	return !strings.Contains(host, ".") || strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".svc.cluster.local")
}

// reservedHeaders are headers that a ladder may not set: the credential's, those of the connection and the framing, and
// the idempotency keys, of which one constant value would make all requests the same to a server that honours them.
var reservedHeaders = map[string]bool{
	"Authorization": true, "Proxy-Authorization": true, "Host": true, "Accept": true, "Accept-Encoding": true,
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Expect": true, "Cookie": true, "X-Api-Key": true,
	"Idempotency-Key": true, "X-Idempotency-Key": true,
}

// CheckHeader tells whether a provider may declare the header. Authorization, Host and every Content-* are the client's
// own, as are connection headers. The error never holds the value.
func CheckHeader(h Header) error {
	if h.Name == "" || strings.Trim(h.Name, tokenChars) != "" {
		return fmt.Errorf("%q is no valid header name", h.Name)
	}
	name := canonicalHeader(h.Name)
	if reservedHeaders[name] || strings.HasPrefix(name, "Content-") {
		return fmt.Errorf("header %s is reserved and cannot be set by a provider", name)
	}
	if !validHeaderValue(h.Value) {
		return fmt.Errorf("the value of header %s has a control character", name)
	}
	return nil
}

// tokenChars are the characters of a header's name (RFC 9110, section 5.6.2).
const tokenChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func validHeaderValue(v string) bool {
	for i := range len(v) {
		if v[i] < ' ' && v[i] != '\t' || v[i] == 0x7f {
			return false
		}
	}
	return true
}
