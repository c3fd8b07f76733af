package qemu

import (
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/lack"
)

// firmwares are where packages have what a machine boots by UEFI with, without Secure Boot: code,
// and variables. Debian's and Ubuntu's ovmf (newer ones have that of 4 MB alone), and Fedora's
// edk2-ovmf.
var firmwares = [][2]string{
	{"/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"},
	{"/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"},
	{"/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"},
}

// UEFI returns the files of the firmware by which machines boot by UEFI, which are only to be read.
func UEFI() (code, variables string, err error) {
	for _, f := range firmwares {
		if unix.Access(f[0], unix.R_OK) == nil && unix.Access(f[1], unix.R_OK) == nil {
			return f[0], f[1], nil
		}
	}
	return "", "", lack.New("OVMF, by which virtual machines boot by UEFI, is not installed", ": ", "apt install ovmf")
}
