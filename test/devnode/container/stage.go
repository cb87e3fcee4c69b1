package container

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stageName is the program name under which a container's process 1 is started.
const stageName = "devnode-container"

// What goes through the two pipes between the program and a container's
// process 1: one stageOrder, then stageCommands; and stageReports back.
type (
	stageOrder struct {
		Spec     Spec
		Actions  []action
		Rootless bool
	}
	// A stageCommand signals the command (Probe 0), runs a probe (Args set) or
	// signals a probe.
	stageCommand struct {
		Signal int      `json:",omitempty"`
		Probe  int      `json:",omitempty"`
		Args   []string `json:",omitempty"`
	}
	// A stageReport says that the command runs, that it cannot, or how a probe
	// ended.
	stageReport struct {
		Started bool   `json:",omitempty"`
		Error   string `json:",omitempty"`
		Probe   int    `json:",omitempty"`
		Code    int    `json:",omitempty"`
		Output  string `json:",omitempty"`
	}
)

func init() {
	if len(os.Args) != 1 || os.Args[0] != stageName {
		return
	}
	// The thread that starts commands carries what they inherit.
	runtime.LockOSThread()
	os.Exit(stageMain())
}

// stageMain is the life of a container's process 1. The exit code is the
// container's.
func stageMain() int {
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	control := bufio.NewReader(os.NewFile(3, "control"))
	s := &supervisor{report: json.NewEncoder(os.NewFile(4, "report")), probes: map[int]*probe{}}
	line, err := control.ReadBytes('\n')
	if err != nil {
		return 128 // the parent is gone
	}
	var order stageOrder
	if err := json.Unmarshal(line, &order); err != nil {
		return s.fail(fmt.Errorf("read the container's order: %w", err))
	}
	s.spec, s.rootless = order.Spec, order.Rootless
	if err := buildRoot(order); err != nil {
		return s.fail(err)
	}
	if err := restrict(order.Spec); err != nil {
		return s.fail(err)
	}
	if err := s.startMain(); err != nil {
		return s.fail(err)
	}
	return s.supervise(control)
}

func (s *supervisor) fail(err error) int {
	// Nobody is left to tell if this fails.
	_ = s.report.Encode(stageReport{Error: err.Error()})
	return 128
}

// buildRoot makes the container's file system and moves this process into it.
func buildRoot(order stageOrder) error {
	root := order.Spec.Root
	if err := unix.Sethostname([]byte(order.Spec.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep the container's mounts to itself: %w", err)
	}
	if err := bind(root, root, false); err != nil {
		return err
	}
	old := unix.Umask(0)
	defer unix.Umask(old)
	for _, dir := range []string{"proc", "dev", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return fmt.Errorf("make /%s: %w", dir, err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o1777); err != nil {
		return fmt.Errorf("open /tmp to all: %w", err)
	}
	if err := mountDev(filepath.Join(root, "dev")); err != nil {
		return err
	}
	for _, a := range order.Actions {
		if err := a.perform(root); err != nil {
			return err
		}
	}
	if err := mountProc(filepath.Join(root, "proc")); err != nil {
		return err
	}
	if dir := order.Spec.Dir; dir != "" {
		// As container runtimes do: the directory is made if it can be.
		_ = os.MkdirAll(filepath.Join(root, dir), 0o755)
	}
	return pivot(root, order.Spec.ReadOnlyRoot)
}

func (a action) perform(root string) error {
	at := filepath.Join(root, a.Path)
	var err error
	switch a.Kind {
	case "dir":
		if err = os.Mkdir(at, 0o755); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	case "file":
		var f *os.File
		if f, err = os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
			err = f.Close()
		}
	case "link":
		err = os.Symlink(a.Source, at)
	case "bind":
		err = bind(a.Source, at, a.ReadOnly)
	default:
		err = fmt.Errorf("unknown action %q", a.Kind)
	}
	if err != nil {
		return fmt.Errorf("lay out %s in the container: %w", a.Path, err)
	}
	return nil
}

// bind mounts source at target, without device files and set-uid bits.
func bind(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s at %s: %w", source, target, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("restrict the mount at %s (Linux 5.12 is needed): %w", target, err)
	}
	return nil
}

// mountDev fills /dev with the devices that every container has.
func mountDev(dev string) error {
	if err := unix.Mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		at := filepath.Join(dev, name)
		if _, err := os.Lstat("/dev/" + name); err != nil {
			continue
		}
		f, err := os.Create(at)
		if err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
		if err := unix.Mount("/dev/"+name, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind /dev/%s: %w", name, err)
		}
	}
	for link, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, filepath.Join(dev, link)); err != nil {
			return fmt.Errorf("link /dev/%s: %w", link, err)
		}
	}
	shm := filepath.Join(dev, "shm")
	if err := os.Mkdir(shm, 0o1777); err != nil {
		return fmt.Errorf("make /dev/shm: %w", err)
	}
	if err := unix.Mount("shm", shm, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=1777,size=64m"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	return nil
}

// mountProc mounts the container's own /proc and takes out what is the host's.
func mountProc(proc string) error {
	if err := unix.Mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc (the host must show its own /proc unmasked): %w", err)
	}
	for _, name := range []string{"kcore", "keys", "timer_list"} {
		at := filepath.Join(proc, name)
		if _, err := os.Lstat(at); err != nil {
			continue
		}
		if err := unix.Mount("/dev/null", at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide /proc/%s: %w", name, err)
		}
	}
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs"} {
		at := filepath.Join(proc, name)
		if _, err := os.Lstat(at); err != nil {
			continue
		}
		if err := bind(at, at, true); err != nil {
			return err
		}
	}
	return nil
}

// pivot makes root the root directory and lets go of the host's.
func pivot(root string, readOnly bool) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter the container's root: %w", err)
	}
	// With the same directory twice the old root lies over the new one, and
	// goes with the unmount.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot into the container's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the host's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter /: %w", err)
	}
	if readOnly {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr); err != nil {
			return fmt.Errorf("make the root read-only: %w", err)
		}
	}
	return nil
}

// restrict takes from this thread what commands must not inherit.
func restrict(spec Spec) error {
	if err := dropBoundingSet(spec.Capabilities); err != nil {
		return err
	}
	if spec.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	return nil
}

// lookPath finds the program as a container runtime does: in the PATH of the
// container's environment unless it has a slash.
func lookPath(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !path.IsAbs(name) {
			name = path.Join("/", dir, name)
		}
		return name, executable(name)
	}
	for _, kv := range env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, d := range filepath.SplitList(list) {
			if p := path.Join(d, name); path.IsAbs(p) && executable(p) == nil {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

func executable(p string) error {
	info, err := os.Stat(p)
	switch {
	case err != nil:
		return fmt.Errorf("exec: %w", err)
	case info.IsDir():
		return fmt.Errorf("exec: %s is a directory", p)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("exec: %s: %w", p, syscall.EACCES)
	}
	return nil
}
