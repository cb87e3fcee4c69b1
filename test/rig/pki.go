package rig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity is how long the rig's certificates live. A rig does not.
const validity = 30 * 24 * time.Hour

// authority signs every certificate of a rig.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

// keyPair is a certificate and its key, PEM encoded.
type keyPair struct {
	cert, key []byte
}

// A subject says whom a certificate names and what it is good for.
type subject struct {
	name   string
	groups []string
	dns    []string
	ips    []net.IP
	usage  []x509.ExtKeyUsage
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the authority's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "belay-rig-ca"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	return &authority{key: key, cert: cert, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

func (a *authority) issue(s subject) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("generate a key for %s: %w", s.name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return keyPair{}, fmt.Errorf("draw a serial number for %s: %w", s.name, err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.name, Organization: s.groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  s.usage,
		DNSNames:     s.dns,
		IPAddresses:  s.ips,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign the certificate of %s: %w", s.name, err)
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return keyPair{}, err
	}
	return keyPair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: encoded}, nil
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// signingKey is a key pair for service account tokens.
func signingKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate the token signing key: %w", err)
	}
	if private, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, fmt.Errorf("encode the token signing key: %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

var (
	server = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	both   = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
)

// Users and groups that the API server knows by its built-in policy.
const (
	adminGroup        = "system:masters"
	controllerManager = "system:kube-controller-manager"
	scheduler         = "system:kube-scheduler"
	kubeletClient     = "belay-rig-kubelet-client"
)

// pki is every credential of a rig.
type pki struct {
	ca                                                             *authority
	etcd, etcdClient, apiserver, kubelet, admin, manager, schedule keyPair
	signing, signingPublic                                         []byte
}

func newPKI() (*pki, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	p := &pki{ca: ca}
	loopback := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, c := range []struct {
		to *keyPair
		s  subject
	}{
		{&p.etcd, subject{name: "etcd", dns: []string{"localhost"}, ips: loopback, usage: both}},
		{&p.etcdClient, subject{name: "etcd-client", usage: client}},
		{&p.apiserver, subject{name: "kube-apiserver", usage: server, ips: append(loopback, serviceIP),
			dns: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}}},
		{&p.kubelet, subject{name: kubeletClient, groups: []string{adminGroup}, usage: client}},
		{&p.admin, subject{name: "belay-rig-admin", groups: []string{adminGroup}, usage: client}},
		{&p.manager, subject{name: controllerManager, usage: client}},
		{&p.schedule, subject{name: scheduler, usage: client}},
	} {
		if *c.to, err = ca.issue(c.s); err != nil {
			return nil, err
		}
	}
	p.signing, p.signingPublic, err = signingKey()
	return p, err
}

// write lays the files down that the components read.
func (p *pki) write(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the certificate directory: %w", err)
	}
	files := map[string][]byte{"ca.crt": p.ca.pem, "sa.key": p.signing, "sa.pub": p.signingPublic}
	for name, pair := range map[string]keyPair{"etcd": p.etcd, "etcd-client": p.etcdClient, "apiserver": p.apiserver, "kubelet-client": p.kubelet} {
		files[name+".crt"], files[name+".key"] = pair.cert, pair.key
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write a certificate file: %w", err)
		}
	}
	return nil
}

func (k keyPair) tls() (tls.Certificate, error) {
	cert, err := tls.X509KeyPair(k.cert, k.key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("load a key pair: %w", err)
	}
	return cert, nil
}
