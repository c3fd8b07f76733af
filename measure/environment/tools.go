package environment

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/inside"
)

// versionArguments are the arguments of programs that do not know --version.
var versionArguments = map[string]string{"ping": "-V", "ip": "-V", "tc": "-V", "ITGSend": "-h", "ITGRecv": "-h",
	"ITGDec": "-h", "ssh": "-V", "zebra": "-v"}

var versionLike = regexp.MustCompile(`[0-9]+\.[0-9]|[0-9]{6,}`)

// tools returns the version of each program: the first line of its output that contains one.
func (m *machine) tools(ctx context.Context, names []string) map[string]string {
	out := map[string]string{}
	for _, name := range names {
		line, err := toolVersion(ctx, name)
		if err != nil {
			m.lack(name, err)
			continue
		}
		out[name] = line
	}
	return out
}

var errNotInstalled = errors.New("it is not installed")

// Lacks reports whether a requested program is not installed.
func (r *Record) Lacks(tool string) bool {
	return slices.Contains(r.Missing, tool+": "+errNotInstalled.Error())
}

func toolVersion(ctx context.Context, name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", errNotInstalled
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	argument := "--version"
	if known, ok := versionArguments[name]; ok {
		argument = known
	}
	cmd := exec.CommandContext(ctx, path, argument)
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput() // some print it and then exit with an error
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); versionLike.MatchString(line) {
			return line[:min(len(line), 200)], nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", path, argument, err)
	}
	return "", fmt.Errorf("%s %s prints no version", path, argument)
}

// Commands of the ethtool ioctl (linux/ethtool.h) that read whether an offload is on.
var offloadCommands = []struct {
	name    string
	command uint32
}{
	{"rx-checksumming", 0x14}, {"tx-checksumming", 0x16}, {"scatter-gather", 0x18},
	{"tcp-segmentation-offload", 0x1e}, {"generic-segmentation-offload", 0x23}, {"generic-receive-offload", 0x2b},
}

func (m *machine) offloads(devices []Device) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, d := range devices {
		settings, err := Offloads(d)
		if err != nil {
			m.lack("offloads of "+d.Name, err)
			continue
		}
		out[d.Name] = settings
	}
	return out
}

// Offloads returns the state of a device's offloads, by ethtool's names.
func Offloads(d Device) (out map[string]bool, err error) {
	err = inside.Namespace(d.Namespace, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		out, err = readOffloads(fd, d.Name)
		return err
	})
	return out, err
}

func readOffloads(fd int, device string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, o := range offloadCommands {
		value := struct{ command, data uint32 }{command: o.command}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte // the rest of struct ifreq
		}{data: unsafe.Pointer(&value)}
		if copy(request.name[:unix.IFNAMSIZ-1], device) < len(device) {
			return nil, fmt.Errorf("%s: the name is too long for a device", device)
		}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		switch errno {
		case 0:
			out[o.name] = value.data != 0
		case unix.ENODEV:
			return nil, errors.New("there is no such device")
		case unix.EOPNOTSUPP:
		default:
			return nil, errno
		}
	}
	return out, nil
}
