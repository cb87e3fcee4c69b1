package rig

import "fmt"

func (r *Rig) etcdArgs() []string {
	return []string{
		"--name=rig",
		"--data-dir=" + r.path("etcd"),
		"--listen-client-urls=" + r.url(r.ports.etcd),
		"--advertise-client-urls=" + r.url(r.ports.etcd),
		"--listen-peer-urls=" + r.url(r.ports.etcdPeer),
		"--initial-advertise-peer-urls=" + r.url(r.ports.etcdPeer),
		"--initial-cluster=rig=" + r.url(r.ports.etcdPeer),
		// Pods share the host's network: etcd must not answer just anyone.
		"--client-cert-auth",
		"--trusted-ca-file=" + r.path("pki", "ca.crt"),
		"--cert-file=" + r.path("pki", "etcd.crt"),
		"--key-file=" + r.path("pki", "etcd.key"),
		"--peer-client-cert-auth",
		"--peer-trusted-ca-file=" + r.path("pki", "ca.crt"),
		"--peer-cert-file=" + r.path("pki", "etcd.crt"),
		"--peer-key-file=" + r.path("pki", "etcd.key"),
		// Nothing outlives the rig, so nothing has to reach the disk.
		"--unsafe-no-fsync",
		"--log-level=warn",
	}
}

func (r *Rig) apiserverArgs() []string {
	return []string{
		"--etcd-servers=" + r.url(r.ports.etcd),
		"--etcd-cafile=" + r.path("pki", "ca.crt"),
		"--etcd-certfile=" + r.path("pki", "etcd-client.crt"),
		"--etcd-keyfile=" + r.path("pki", "etcd-client.key"),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", r.ports.apiserver),
		// A loopback address cannot be an endpoint of the service "kubernetes".
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=Node,RBAC",
		"--client-ca-file=" + r.path("pki", "ca.crt"),
		"--tls-cert-file=" + r.path("pki", "apiserver.crt"),
		"--tls-private-key-file=" + r.path("pki", "apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + r.path("pki", "sa.pub"),
		"--service-account-signing-key-file=" + r.path("pki", "sa.key"),
		"--kubelet-certificate-authority=" + r.path("pki", "ca.crt"),
		"--kubelet-client-certificate=" + r.path("pki", "kubelet-client.crt"),
		"--kubelet-client-key=" + r.path("pki", "kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		// What a node refuses it should get to refuse.
		"--allow-privileged=true",
		"--shutdown-delay-duration=0s",
		"--v=1",
	}
}

func (r *Rig) managerArgs() []string {
	return []string{
		"--kubeconfig=" + r.path("manager.kubeconfig"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", r.ports.manager),
		"--leader-elect=false",
		"--service-account-private-key-file=" + r.path("pki", "sa.key"),
		"--root-ca-file=" + r.path("pki", "ca.crt"),
		"--use-service-account-credentials=true",
		"--allocate-node-cidrs=false",
		"--v=1",
	}
}

func (r *Rig) schedulerArgs() []string {
	return []string{
		"--kubeconfig=" + r.path("scheduler.kubeconfig"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", r.ports.scheduler),
		"--leader-elect=false",
		"--v=1",
	}
}
