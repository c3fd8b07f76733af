package qemu

import (
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lack"
)

// firmwares are the paths of UEFI firmware without Secure Boot in packages: code, and variables.
// Debian's and Ubuntu's ovmf (newer ones have only the 4 MB variant), and Fedora's edk2-ovmf.
var firmwares = [][2]string{
	{"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"},
	{"/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"},
	{"/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"},
}

// UEFI returns the files of the UEFI firmware, which must not be written to.
func UEFI() (code, variables string, err error) {
	for _, f := range firmwares {
		if unix.Access(f[0], unix.R_OK) == nil && unix.Access(f[1], unix.R_OK) == nil {
			return f[0], f[1], nil
		}
	}
	return "", "", lack.New("OVMF, by which virtual machines boot by UEFI, is not installed", ": ", "apt install ovmf")
}
