//go:build linux

package cache

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// shared maps the values of an array into this process's memory. Values must be a multiple of 8
// bytes.
func shared[T any](m *ebpf.Map) ([]T, error) {
	var v T
	count := int(m.MaxEntries())
	size := (count*int(unsafe.Sizeof(v)) + os.Getpagesize() - 1) &^ (os.Getpagesize() - 1)
	mem, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", m, err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[0])), count), nil
}

func unshare[T any](list []T) {
	if len(list) == 0 {
		return
	}
	var v T
	size := (len(list)*int(unsafe.Sizeof(v)) + os.Getpagesize() - 1) &^ (os.Getpagesize() - 1)
	_ = unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(&list[0])), size))
}

// The program may read a value while it is being written: words on which it decides are written
// atomically.
func store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
func load64(p *uint64) uint64     { return atomic.LoadUint64(p) }
func store64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
