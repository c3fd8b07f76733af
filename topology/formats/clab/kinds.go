package clab

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kinds of nodes that are not containers made from an image.
const (
	kindLinux  = "linux"
	kindBridge = "bridge"
	kindOVS    = "ovs-bridge"
)

// kind is what Trivet knows about a kind of nodes.
type kind struct {
	names  []string // all that containerlab has used over the years
	ports  *regexp.Regexp
	offset int                         // the number of the port that is eth1
	device func(match []string) string // nil: eth with a number from the port and the offset
	host   bool                        // does not forward packets of others
}

// kinds are containerlab's kinds of containers. A port that does not match ports is taken for the
// name of a device.
var kinds = []kind{
	{names: []string{kindLinux, "generic_vm", "keysight_ixia-c-one", "spirent_stc", "ostinato", "border0"}, host: true},

	{names: []string{"nokia_srlinux", "srl"}, ports: regexp.MustCompile(`^ethernet-(\d+/\d+(?:/\d+)?)$`),
		device: dashed},
	{names: []string{"nokia_srsim"}, ports: regexp.MustCompile(`^(\d+/(?:x\d+/)?\d+(?:/c\d+)?/\d+)$`), device: dashed},
	{names: []string{"nokia_sros", "vr-sros", "vr-nokia_sros"}, ports: regexp.MustCompile(`^1/1/(?:(\d+)|c(\d+)/1)$`),
		device: func(m []string) string { return "eth" + m[1] + m[2] }},
	{names: []string{"cisco_iol"}, ports: regexp.MustCompile(`^(?:e|Ethernet) ?(\d)/(\d)$`),
		device: func(m []string) string {
			slot, port := number(m[1]), number(m[2])
			return fmt.Sprintf("eth%d", 4*slot+port)
		}},

	{names: []string{"juniper_vmx", "vr-vmx", "vr-juniper_vmx", "juniper_vqfx", "vr-vqfx", "vr-juniper_vqfx",
		"juniper_vsrx", "vr-vsrx", "vr-juniper_vsrx",
		"juniper_vjunosrouter", "juniper_vjunosswitch", "juniper_vjunosevolved"},
		ports: regexp.MustCompile(`^(?:et|xe|ge)-0/0/(\d+)$`)},
	{names: []string{"cjunosevolved", "juniper_cjunosevolved"}, ports: regexp.MustCompile(`^et-0/0/(\d+)$`),
		offset: -3},
	{names: []string{"cisco_xrv", "vr-xrv", "vr-cisco_xrv", "cisco_xrv9k", "vr-xrv9k", "vr-cisco_xrv9k",
		"cisco_xrd_vrouter"},
		ports: regexp.MustCompile(`^(?:Gi|GigabitEthernet|Te|TenGigE|TenGigabitEthernet) ?0/0/0/(\d+)$`)},
	{names: []string{"cisco_csr1000v", "vr-csr", "vr-cisco_csr1000v", "cisco_c8000v"},
		ports: regexp.MustCompile(`^(?:Gi|GigabitEthernet) ?(\d+)$`), offset: 2},
	{names: []string{"cisco_vios"}, ports: regexp.MustCompile(`^(?:Gi|GigabitEthernet) ?(\d+)$`)},
	{names: []string{"cisco_cat9kv"}, ports: regexp.MustCompile(`^(?:Gi|GigabitEthernet) ?1/0/(\d+)$`), offset: 1},
	{names: []string{"cisco_asav", "cisco_ftdv"}, ports: regexp.MustCompile(`^(?:Gi|GigabitEthernet) ?0/(\d+)$`)},
	{names: []string{"cisco_n9kv", "vr-n9kv", "vr-cisco_n9kv"},
		ports: regexp.MustCompile(`^(?:Et|Ethernet) ?1/(\d+)$`), offset: 1},
	{names: []string{"arista_veos", "vr-veos", "vr-arista_veos", "paloalto_panos", "vr-pan", "vr-paloalto_panos"},
		ports: regexp.MustCompile(`^(?:Et|Ethernet)1/(\d+)$`), offset: 1},
	{names: []string{"aruba_aoscx", "vr-aoscx", "vr-aruba_aoscx"}, ports: regexp.MustCompile(`^1/1/(\d+)$`), offset: 1},
	{names: []string{"mikrotik_ros", "vr-ros", "vr-mikrotik_ros"}, ports: regexp.MustCompile(`^ether(\d+)$`),
		offset: 2},
	{names: []string{"fortinet_fortigate"}, ports: regexp.MustCompile(`^port(\d+)$`), offset: 2},
	{names: []string{"nvidia_cumulusvx"}, ports: regexp.MustCompile(`^swp(\d+)$`), offset: 1},
	{names: []string{"ciena_saos", "vr-ciena_saos"}, ports: regexp.MustCompile(`^(\d+)$`), offset: 1},
	{names: []string{"f5_bigip-ve"}, ports: regexp.MustCompile(`^1\.(\d+)$`), offset: 1},
	{names: []string{"freebsd"}, ports: regexp.MustCompile(`^vtnet(\d+)$`), offset: 1},
	{names: []string{"openbsd"}, ports: regexp.MustCompile(`^vio(\d+)$`), offset: 1},

	{names: []string{"arista_ceos", "ceos", "juniper_crpd", "crpd", "juniper_csrx", "cisco_xrd", "xrd", "cisco_c8000",
		"c8000", "sonic-vs", "sonic-vm", "dell_sonic",
		"plvision_sonic", "vyosnetworks_vyos", "frr", "rare", "cvx", "cumulus_cvx", "6wind_vsr", "fdio_vpp",
		"arrcus_arcos", "huawei_vrp", "ipinfusion_ocnos",
		"checkpoint_cloudguard", "cisco_sdwan", "dell_ftosv", "vr-ftosv", "vr-dell_ftosv", "openwrt", "veesix_osvbng"}},
}

// kindOf returns what is known about a kind, or nil.
func kindOf(name string) *kind {
	for i := range kinds {
		if slices.Contains(kinds[i].names, name) {
			return &kinds[i]
		}
	}
	return nil
}

// kindNames returns the names of all kinds that are supported here.
func kindNames() []string {
	names := []string{kindBridge, kindOVS}
	for _, k := range kinds {
		names = append(names, k.names...)
	}
	return names
}

// deviceOf returns the name of the device, in a node's container, for a port that a file names.
func (k *kind) deviceOf(port string) (device string, ok bool) {
	if k == nil || k.ports == nil {
		return port, true
	}
	match := k.ports.FindStringSubmatch(port)
	if match == nil {
		return port, !strings.ContainsAny(port, "/ ")
	}
	if k.device != nil {
		return k.device(match), true
	}
	n := number(match[1]) - k.offset + 1
	return fmt.Sprintf("eth%d", n), n >= 1
}

func dashed(match []string) string { return "e" + strings.ReplaceAll(match[1], "/", "-") }

// number parses a number that consists of digits only; numbers too large for a port become 9999.
func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil || n > 9999 {
		return 9999
	}
	return n
}

// routes matches images with programs that make a Linux container a router.
var routes = regexp.MustCompile(`(?i)(^|[/:_.-])(frr|frrouting|quagga|bird[0-9]?|gobgp|openbgpd|exabgp|vyos|holo|freertr)([/:@_.-]|$)`)
