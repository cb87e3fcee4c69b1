package runner

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
)

// Config is what a runner knows from its pod.
type Config struct {
	Namespace string
	Run       string
	RunUID    string
	Epoch     int64
	PodName   string
	PodUID    string

	// LedgerDir holds a directory for each run, named by its UID.
	LedgerDir string
	// CredentialsDir holds <secret>/<key> files. They are read again for every turn, so a rotated key is used at once.
	CredentialsDir string
	// TextsDir holds the files task and system of a run that takes them from ConfigMaps.
	TextsDir string
	// Socket is the workspace's tool server.
	Socket string
	// TerminationLog is where the kubelet reads a pod's last words.
	TerminationLog string
	// BallastBytes keeps room for the last records on a full disk.
	BallastBytes int64
	// API is how to reach the API server.
	API *rest.Config
}

// The paths of a run's pod.
const (
	defaultLedgerDir      = "/belay/ledger"
	defaultCredentialsDir = "/belay/credentials"
	defaultTextsDir       = "/belay/texts"
	defaultSocket         = "/belay/run/toolbox.sock"
	defaultTokenDir       = "/belay/token"
	defaultTerminationLog = "/dev/termination-log"
)

// FromEnvironment reads the configuration that the agentrun controller gave the pod. Its error names every variable that
// is missing or wrong.
func FromEnvironment(getenv func(string) string) (Config, error) {
	var errs []error
	get := func(name string) string {
		v := getenv(name)
		if v == "" {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
		return v
	}
	c := Config{
		Namespace: get("BELAY_NAMESPACE"), Run: get("BELAY_RUN"), RunUID: get("BELAY_RUN_UID"),
		PodName: get("POD_NAME"), PodUID: get("POD_UID"),
		LedgerDir: defaultLedgerDir, CredentialsDir: defaultCredentialsDir, TextsDir: defaultTextsDir,
		Socket: defaultSocket, TerminationLog: defaultTerminationLog,
	}
	epoch, err := strconv.ParseInt(get("BELAY_EPOCH"), 10, 64)
	if err != nil || epoch < 1 {
		errs = append(errs, errors.New("BELAY_EPOCH must be a number from 1"))
	}
	c.Epoch = epoch
	host, port := get("KUBERNETES_SERVICE_HOST"), get("KUBERNETES_SERVICE_PORT")
	c.API = &rest.Config{
		Host:            "https://" + net.JoinHostPort(host, port),
		BearerTokenFile: filepath.Join(defaultTokenDir, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(defaultTokenDir, "ca.crt")},
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, fmt.Errorf("the runner works in a pod of an AgentRun only: %w", err)
	}
	return c, nil
}
