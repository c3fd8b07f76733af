// Package bpf holds the program that forwards the packets of embedded switches in the kernel,
// compiled, and the Go types of its maps.
package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package bpf -target bpfel -type port -type mask -type entry -type output -type counter -type flow_key -type activation Forward forward.c -- -O2 -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
//go:generate sh -c "sha256sum doc.go *.h *.c *.o forward_bpfel.go >generated.sha256"
