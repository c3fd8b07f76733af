package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/topology"
)

// check says which of a machine's files are not what they have to be.
func check(g *topology.Guest) error {
	for _, file := range []string{g.Kernel, g.Initrd} {
		if file != "" {
			if err := isFile(file); err != nil {
				return err
			}
		}
	}
	images := []string{g.Image}
	for _, d := range g.Disks {
		images = append(images, d.Image)
	}
	for _, image := range images {
		if image == "" {
			continue
		}
		if _, err := formatOf(image); err != nil {
			return err
		}
	}
	return nil
}

// isFile says why a name does not denote a file. A symbolic link to another directory is refused:
// root opens only what the topology names.
func isFile(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", name)
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(name))
	if err != nil {
		return err
	}
	if filepath.Dir(real) != dir {
		return fmt.Errorf("%s is a link that leads to %s: name that", name, real)
	}
	return nil
}

// magics are the first bytes of image formats that are not supported.
var magics = map[string]string{"KDMV": "VMDK", "# Disk DescriptorFile": "VMDK", "<<< ": "VDI", "vhdxfile": "VHDX",
	"conectix": "VHD", "\x1f\x8b": "gzip", "\xfd7zXZ": "xz", "PK\x03\x04": "zip"}

// formatOf returns the format of a disk's image, "qcow2" or "raw". An image that refers to other
// files is refused: through it a guest could read any of the machine's.
func formatOf(name string) (string, error) {
	if err := isFile(name); err != nil {
		return "", err
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // in case it is a pipe by now
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 80)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", err
	}
	if n < 72 || !bytes.HasPrefix(head, []byte("QFI\xfb")) {
		for magic, what := range magics {
			if bytes.HasPrefix(head, []byte(magic)) {
				return "",
					fmt.Errorf("%s is of the kind %s; convert it first:  qemu-img convert -O qcow2 %s DISK.qcow2", name,
						what, name)
			}
		}
		return "raw", nil
	}
	// docs/interop/qcow2.txt of QEMU: the version at 4, the offset of a backing file's name at 8,
	// and, from version 3, incompatible features at 72, of which bit 2 is an external data file.
	const externalData = 1 << 2
	elsewhere := binary.BigEndian.Uint64(head[8:]) != 0
	if binary.BigEndian.Uint32(head[4:]) >= 3 && n == len(head) {
		elsewhere = elsewhere || binary.BigEndian.Uint64(head[72:])&externalData != 0
	}
	if elsewhere {
		return "",
			fmt.Errorf("%s holds its data in another file; make one of them:  qemu-img convert -O qcow2 %s DISK.qcow2",
				name, name)
	}
	return "qcow2", nil
}
