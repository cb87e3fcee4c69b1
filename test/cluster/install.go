package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	systemNamespace = "belay-system"
	managerAccount  = "belay-manager"
	// tokenDuration outlasts a cluster that somebody keeps for a day.
	tokenDuration = "24h"
)

// install applies config/default without its Deployment: the manager runs as a process of this machine instead, with the
// rights of its own account and no more.
func (c *Cluster) install(ctx context.Context) error {
	rendered, err := c.Kubectl(ctx, "kustomize", filepath.Join(c.options.Root, "config", "default"))
	if err != nil {
		return err
	}
	var objects []string
	for _, object := range strings.Split(rendered, "\n---\n") {
		if !strings.Contains("\n"+object, "\nkind: Deployment\n") {
			objects = append(objects, object)
		}
	}
	if _, err := c.KubectlInput(ctx, strings.Join(objects, "\n---\n"), "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd",
		"agentruns.agents.belay.dev", "routeladders.agents.belay.dev", "providerhealths.agents.belay.dev"); err != nil {
		return err
	}
	return c.writeManagerKubeconfig(ctx)
}

func (c *Cluster) managerKubeconfig() string {
	return filepath.Join(c.options.Dir, "manager.kubeconfig")
}

func (c *Cluster) writeManagerKubeconfig(ctx context.Context) error {
	token, err := c.Kubectl(ctx, "create", "token", managerAccount, "-n", systemNamespace, "--duration="+tokenDuration)
	if err != nil {
		return err
	}
	admin := c.Rig.Config()
	config := clientcmdapi.NewConfig()
	config.Clusters["rig"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: c.Rig.CA()}
	config.AuthInfos["manager"] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	config.Contexts["manager"] = &clientcmdapi.Context{Cluster: "rig", AuthInfo: "manager", Namespace: systemNamespace}
	config.CurrentContext = "manager"
	if err := clientcmd.WriteToFile(*config, c.managerKubeconfig()); err != nil {
		return fmt.Errorf("write the manager's kubeconfig: %w", err)
	}
	return nil
}
