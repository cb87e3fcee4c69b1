package failure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Cause is an end that our side found: a timer that fired, a stream that broke off, a request that may not be sent. It
// is an error, so that it can be the cause of a cancelled context.
type Cause struct {
	Kind Kind
	Sub  Sub
	// Message says in our words what happened and what to do. It must hold no provider text and no secret.
	Message string
}

// Error returns the kind and the message.
func (c *Cause) Error() string { return string(c.Kind) + ": " + c.Message }

// Causef makes a Cause with a formatted message.
func Causef(kind Kind, format string, args ...any) *Cause {
	return &Cause{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// ownCause is stage 1: what we ended ourselves is never the provider's word, whatever arrived before.
func ownCause(err error) (verdict, bool) {
	if err == nil {
		return verdict{}, false
	}
	var cause *Cause
	if errors.As(err, &cause) {
		// What our decoder found of a stream is stage 2.
		own := cause.Kind == Cancelled || cause.Kind == Timeout || cause.Kind == StreamStalled || cause.Kind == Network
		return causeVerdict(cause), own
	}
	if errors.Is(err, context.Canceled) {
		return verdict{kind: Cancelled, firm: true, message: "the attempt was cancelled by the run"}, true
	}
	// A deadline of the caller is the run's own and says nothing about the provider; the attempt's limit is a Cause.
	if errors.Is(err, context.DeadlineExceeded) {
		return verdict{kind: Cancelled, firm: true, message: "the attempt was ended by the run's own deadline"}, true
	}
	return verdict{}, false
}

func causeVerdict(c *Cause) verdict {
	return verdict{kind: c.Kind, sub: c.Sub, firm: true, message: c.Message}
}

// brokenStream is the part of stage 2 without words of the provider: our decoder's finding, or a broken connection.
func brokenStream(f Facts) (verdict, bool) {
	if f.Err == nil {
		return verdict{}, false
	}
	var cause *Cause
	if errors.As(f.Err, &cause) {
		return causeVerdict(cause), true
	}
	if f.Status == 0 {
		return networkVerdict(f.Err), true
	}
	if f.Status < 400 {
		return verdict{kind: StreamTruncated, firm: true, message: "the connection broke before the answer was complete"}, true
	}
	// The body of an error response broke off: the status and what came of the body still tell the kind.
	return verdict{}, false
}

// networkVerdict says why no response came, without the error's own text, which may quote what the peer sent.
func networkVerdict(err error) verdict {
	v := verdict{kind: Network, firm: true}
	var (
		dns         *net.DNSError
		unknownCA   x509.UnknownAuthorityError
		wrongName   x509.HostnameError
		invalidCert x509.CertificateInvalidError
		verify      *tls.CertificateVerificationError
		notTLS      tls.RecordHeaderError
		alert       tls.AlertError
		netErr      net.Error
	)
	switch {
	case errors.As(err, &unknownCA), errors.As(err, &wrongName), errors.As(err, &invalidCert), errors.As(err, &verify):
		v.sub = SubConfiguration
		v.message = "the endpoint's TLS certificate was not accepted; check the host name, or set the provider's caBundle"
	case errors.As(err, &notTLS):
		v.sub = SubConfiguration
		v.message = "the endpoint does not speak TLS; check the provider's baseURL"
	case errors.As(err, &alert):
		v.message = "the endpoint refused the TLS handshake"
	case errors.As(err, &dns):
		v.message = "the endpoint's host name could not be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		v.message = "the endpoint refused the connection"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		v.message = "the endpoint reset the connection before it answered"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		v.message = "the endpoint cannot be reached from this network"
	case errors.As(err, &netErr) && netErr.Timeout():
		v.message = "the connection to the endpoint timed out"
	default:
		v.message = "the connection to the endpoint failed before an answer began"
	}
	return v
}
