package container

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// capabilityNames are the capabilities by number, as capabilities(7) lists
// them.
var capabilityNames = []string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
	"SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
	"IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
	"SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
	"LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
	"WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
}

// DefaultCapabilities is the bounding set of a container whose pod says
// nothing: what container runtimes give, without MKNOD and NET_RAW, since
// containers share the host's network.
var DefaultCapabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"NET_BIND_SERVICE", "SYS_CHROOT", "AUDIT_WRITE", "SETFCAP",
}

// dropBoundingSet takes every capability out of this thread's bounding set that
// is not in keep.
func dropBoundingSet(keep []string) error {
	for number, name := range capabilityNames {
		if slices.Contains(keep, name) {
			continue
		}
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(number), 0, 0, 0)
		if err != nil || has == 0 {
			continue // this kernel does not know it, or it is out already
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0); err != nil {
			return fmt.Errorf("drop the capability %s: %w", name, err)
		}
	}
	return nil
}
