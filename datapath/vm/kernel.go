package vm

import (
	"bufio"
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/kernel"
	"trivet.dev/trivet/internal/lack"
)

// KernelVariable names, in the environment, a directory with another kernel than those in /boot:
// the file linux, and lib/modules/VERSION.
const KernelVariable = "TRIVET_VM_KERNEL"

// Kernel is one that guests can have.
type Kernel struct {
	Image   string // bzImage
	Modules string // the directory VERSION of its modules
}

// bootModules are the modules that a guest needs before it sees the machine's file system.
var bootModules = []string{"virtio_pci", "virtiofs", "overlay", "virtio_net", "virtio_balloon"}

// FindKernel returns the kernel for guests: the one in dir, if that is given (see KernelVariable),
// the running one, or the newest in /boot.
func FindKernel(dir string) (Kernel, error) {
	if dir != "" {
		versions, _ := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
		if _, err := os.Stat(filepath.Join(dir, "linux")); err != nil || len(versions) != 1 {
			return Kernel{}, fmt.Errorf("%s=%s: it must have a file linux, and one directory lib/modules/VERSION",
				KernelVariable, dir)
		}
		return Kernel{filepath.Join(dir, "linux"), versions[0]}, nil
	}
	images, _ := filepath.Glob("/boot/vmlinuz-*")
	slices.SortFunc(images, func(a, b string) int { return compareVersions(b, a) })
	if running := "/boot/vmlinuz-" + kernel.Release(); slices.Contains(images, running) {
		images = append([]string{running}, images...)
	}
	for _, image := range images {
		k := Kernel{image, filepath.Join("/lib/modules", strings.TrimPrefix(image, "/boot/vmlinuz-"))}
		if _, err := k.bootOrder(); err == nil {
			return k, nil
		}
	}
	return Kernel{},
		lack.New("there is no kernel for virtual machines in /boot (one with virtiofs and overlay as modules)", ": ",
			"apt install linux-image-cloud-amd64 (Debian) or linux-image-virtual (Ubuntu)")
}

// KeepKernel is FindKernel, except that without a directory it returns the same kernel as last
// time, as long as that exists. It records its result in a file.
func KeepKernel(dir, file string) (k Kernel, err error) {
	b, err := os.ReadFile(file)
	if dir == "" && err == nil && json.Unmarshal(b, &k) == nil && k.isThere() {
		return k, nil
	}
	if k, err = FindKernel(dir); err != nil {
		return k, err
	}
	if b, err = json.Marshal(k); err != nil {
		return k, err
	}
	return k, os.WriteFile(file, b, 0o600)
}

func (k Kernel) isThere() bool {
	_, err := os.Stat(k.Image)
	_, without := k.bootOrder()
	return err == nil && without == nil
}

// compareVersions compares names, in which numbers are compared by value.
func compareVersions(a, b string) int {
	words := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == '.' || r == '-' })
	}
	return slices.CompareFunc(words(a), words(b), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
}

// bootOrder lists the files of bootModules, and of those they need, in the order in which they are
// loaded; what is built in is left out.
func (k Kernel) bootOrder() (files []string, err error) {
	needs, path := map[string][]string{}, map[string]string{}
	table, err := os.ReadFile(filepath.Join(k.Modules, "modules.dep")) // modules.dep(5)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(table)) {
		file, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		needs[file], path[moduleName(file)] = strings.Fields(rest), file
	}
	built, err := os.ReadFile(filepath.Join(k.Modules, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	builtin := map[string]bool{}
	for s := bufio.NewScanner(bytes.NewReader(built)); s.Scan(); {
		builtin[moduleName(s.Text())] = true
	}
	for _, name := range bootModules {
		switch file := path[name]; {
		case file != "":
			for _, f := range slices.Backward(append([]string{file}, needs[file]...)) {
				if !slices.Contains(files, f) {
					files = append(files, f)
				}
			}
		case !builtin[name]:
			return nil, fmt.Errorf("%s has no module %s", k.Modules, name)
		}
	}
	return files, nil
}

func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// module reads a module, which may be compressed.
func (k Kernel) module(file string) ([]byte, error) {
	full := filepath.Join(k.Modules, file)
	program := map[string]string{".xz": "xz", ".zst": "zstd", ".gz": "gzip"}[filepath.Ext(file)]
	if program == "" {
		return os.ReadFile(full)
	}
	out, err := exec.Command(program, "-dc", full).Output()
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", full, err)
	}
	return out, nil
}

// WriteInitrd writes the initramfs of guests: this program, and the modules that it loads.
func (k Kernel) WriteInitrd(to, program string) (err error) {
	order, err := k.bootOrder()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			os.Remove(to)
		}
	}()
	out := bufio.NewWriterSize(f, 1<<20)
	w := archive{out: out}
	for _, dir := range []string{"proc", "sys", "dev", "modules", "low", "mem"} {
		w.add(dir, unix.S_IFDIR|0o755, nil)
	}
	for i, file := range order {
		b, err := k.module(file)
		if err != nil {
			return err
		}
		w.add(fmt.Sprintf("modules/%03d-%s", i, moduleName(file)), unix.S_IFREG|0o644, b)
	}
	self, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if f, err := elf.NewFile(bytes.NewReader(self)); err == nil && f.Section(".interp") != nil {
		return fmt.Errorf("%s is linked dynamically, and a guest boots without libraries: build it with CGO_ENABLED=0, as make does", program)
	}
	w.add("init", unix.S_IFREG|0o755, self)
	w.add("TRAILER!!!", 0, nil)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	return nil
}

// archive writes an initramfs in the format "newc" (the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst). Errors are kept by its writer.
type archive struct {
	out   *bufio.Writer
	inode int
}

func (a *archive) add(name string, mode int, data []byte) {
	a.inode++
	fmt.Fprintf(a.out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.inode, mode, 0, 0, 1, 0,
		len(data), 0, 0, 0, 0, len(name)+1, 0)
	pad := func(n int) {
		for range -n & 3 {
			_ = a.out.WriteByte(0)
		}
	}
	_, _ = a.out.WriteString(name)
	_ = a.out.WriteByte(0)
	pad(110 + len(name) + 1)
	_, _ = a.out.Write(data)
	pad(len(data))
}
