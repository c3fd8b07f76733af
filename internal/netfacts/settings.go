package netfacts

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The devices' settings that affect what is forwarded or answered, by their index in the kernel's
// lists for each device (IPV4_DEVCONF_… of linux/ip.h, from 1; DEVCONF_… of linux/ipv6.h, from 0).
var (
	inet4 = map[int]string{1: "ipv4.forwarding", 3: "ipv4.proxy_arp", 8: "ipv4.rp_filter", 13: "ipv4.arp_filter",
		18: "ipv4.arp_announce",
		19: "ipv4.arp_ignore", 23: "ipv4.accept_local"}
	inet6 = map[int]string{0: "ipv6.forwarding", 3: "ipv6.accept_ra", 22: "ipv6.proxy_ndp", 26: "ipv6.disable_ipv6"}
)

// shared are the namespace's settings, by the corresponding names of devices' settings.
var shared = []struct{ name, file string }{
	{"ipv4.forwarding", "ipv4/ip_forward"},
	{"ipv4.rp_filter", "ipv4/conf/all/rp_filter"},
	{"ipv4.proxy_arp", "ipv4/conf/all/proxy_arp"},
	{"ipv4.arp_filter", "ipv4/conf/all/arp_filter"},
	{"ipv4.arp_announce", "ipv4/conf/all/arp_announce"},
	{"ipv4.arp_ignore", "ipv4/conf/all/arp_ignore"},
	{"ipv4.icmp_echo_ignore_all", "ipv4/icmp_echo_ignore_all"},
	{"ipv4.fib_multipath_hash_policy", "ipv4/fib_multipath_hash_policy"},
	{"ipv4.fib_multipath_use_neigh", "ipv4/fib_multipath_use_neigh"},
	{"ipv6.forwarding", "ipv6/conf/all/forwarding"},
	{"ipv6.disable_ipv6", "ipv6/conf/all/disable_ipv6"},
	{"ipv6.fib_multipath_hash_policy", "ipv6/fib_multipath_hash_policy"},
}

// portSettings are the settings of a bridge's ports that affect forwarding.
var portSettings = []struct {
	attribute uint16
	does      string
	usual     byte
}{
	{unix.IFLA_BRPORT_MODE, "hairpin", 0}, {unix.IFLA_BRPORT_LEARNING, "learning", 1}, {unix.IFLA_BRPORT_UNICAST_FLOOD,
		"flood", 1},
	{unix.IFLA_BRPORT_BCAST_FLOOD, "bcast_flood", 1}, {unix.IFLA_BRPORT_ISOLATED, "isolated", 0},
}

// deviceSettings reads the settings of one device.
func (r *reader) deviceSettings(device string, own []byte) {
	families := attributes(own, 0)
	conf4, conf6 := attributes(families[unix.AF_INET], 0)[inetConf], attributes(families[unix.AF_INET6], 0)[inet6Conf]
	put := func(name string, value uint32) {
		if value != 0 {
			r.facts.put(Sysctl, device, name, number(value))
		}
	}
	for i, name := range inet4 {
		put(name, u32(conf4, 4*(i-1)))
	}
	for i, name := range inet6 {
		put(name, u32(conf6, 4*i))
	}
}

func (r *reader) settings() error {
	for _, s := range shared {
		value, err := r.file("sys/net/" + s.file)
		if err != nil {
			return err
		}
		if value = strings.TrimSpace(value); value != "" && value != "0" {
			r.facts.put(Sysctl, "", s.name, value)
		}
	}
	return nil
}

// file reads a short file of the procfs; "": there is none.
func (r *reader) file(name string) (string, error) {
	dir := r.proc
	if dir == 0 {
		dir, name = unix.AT_FDCWD, "/proc/"+name
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var b [512]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}
