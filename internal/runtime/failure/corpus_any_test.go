package failure

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
)

// dialError wraps an error as net/http's transport returns it.
func dialError(err error) error {
	return &url.Error{Op: "Post", URL: "https://h.example/v1", Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}}
}

var anyRows = []corpusRow{
	{row: 157, name: "no such host", err: dialError(&net.DNSError{Err: "no such host", Name: "h.example", IsNotFound: true}), kind: Network},
	{row: 157, name: "connection refused", err: dialError(os.NewSyscallError("connect", syscall.ECONNREFUSED)), kind: Network},
	{row: 157, name: "TLS handshake timeout", err: dialError(timeoutError{}), kind: Network},
	{row: 157, name: "reset before the answer", err: dialError(os.NewSyscallError("read", syscall.ECONNRESET)), kind: Network},
	{row: 157, name: "end before the answer", err: dialError(io.EOF), kind: Network},
	{row: 158, name: "unknown authority", kind: Network, sub: SubConfiguration,
		err: dialError(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})},
	{row: 158, name: "wrong name", kind: Network, sub: SubConfiguration,
		err: dialError(fmt.Errorf("verify: %w", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h.example"}))},
	{row: 163, name: "the connection breaks in the stream", status: 200, err: io.ErrUnexpectedEOF, kind: StreamTruncated},
	{row: 166, name: "bad gateway", status: 502, header: h("content-type", "text/html"),
		body: "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n</html>", kind: ServerError},
	{row: 166, name: "unavailable with a hint", status: 503, header: h("content-type", "text/html", "retry-after", "30"),
		body: "<html><head><title>503 Service Temporarily Unavailable</title></head></html>", kind: ServerError, wait: "30s retry-after"},
	{row: 166, name: "gateway timeout", status: 504, header: h("content-type", "text/html"),
		body: "<html><head><title>504 Gateway Time-out</title></head></html>", kind: ServerError},
}

type timeoutError struct{}

func (timeoutError) Error() string   { return "net/http: TLS handshake timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }
