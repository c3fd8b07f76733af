package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"trivet.dev/trivet/topology"
)

// A guest's cloud-init reads from a disk of its own (the data source NoCloud), whose files are in a
// directory of the machine's.
const seedDir, seedLabel = "seed", "CIDATA"

// writeSeed writes what a guest's cloud-init reads, unless nothing in the machine can read it.
func (k *guests) writeSeed(n *topology.Node, interfaces []Interface) (wrote bool, err error) {
	g := n.Guest
	if g.Image == "" && g.UserData.Text == "" {
		return false, nil
	}
	key, err := k.publicKey()
	if err != nil {
		return false, err
	}
	vendor, err := vendorData(g)
	if err != nil {
		return false, err
	}
	meta, err := yaml.Marshal(map[string]any{
		"instance-id":    fmt.Sprintf("trivet-%s-%s", k.Name, n.Name),
		"local-hostname": n.Name,
		"public-keys":    []string{key},
	})
	if err != nil {
		return false, err
	}
	network, err := yaml.Marshal(networkConfig(n, interfaces))
	if err != nil {
		return false, err
	}
	dir := filepath.Join(k.dir(n.Name), seedDir)
	// Whatever the umask: QEMU is unprivileged.
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return false, err
	}
	files := map[string][]byte{"meta-data": meta, "user-data": []byte(g.UserData.Text), "vendor-data": vendor,
		"network-config": network}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file, text, 0o644), os.Chmod(file, 0o644)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// vendorData returns Trivet's configuration for a guest's cloud-init; user data, which are the
// owner's, take precedence. It makes cloud-init install the key of the meta-data for root and for
// the user as whom Trivet logs in, by making that user the image's default user, subject to what
// the image and the user data say of it. Logins by password are left to the owner.
func vendorData(g *topology.Guest) ([]byte, error) {
	config := map[string]any{"disable_root": false}
	if g.User != "" && g.User != "root" && g.Password == "" {
		config["user"] = map[string]any{"name": g.User, "lock_passwd": false}
	}
	text, err := yaml.Marshal(config)
	return append([]byte("#cloud-config\n"), text...), err
}

// networkConfig returns cloud-init's network configuration, version 2. The interfaces get the names
// that they have in the topology.
func networkConfig(n *topology.Node, interfaces []Interface) any {
	type match struct {
		MAC string `yaml:"macaddress"`
	}
	type route struct {
		To     string `yaml:"to"`
		Via    string `yaml:"via"`
		Metric int    `yaml:"metric,omitempty"`
	}
	type ethernet struct {
		Match     match    `yaml:"match"`
		Name      string   `yaml:"set-name"`
		DHCP4     bool     `yaml:"dhcp4"`
		DHCP6     bool     `yaml:"dhcp6"`
		MTU       int      `yaml:"mtu,omitempty"`
		Addresses []string `yaml:"addresses,omitempty"`
		Routes    []route  `yaml:"routes,omitempty"`
		Optional  bool     `yaml:"optional"`
	}
	ethernets := map[string]*ethernet{}
	for _, f := range interfaces {
		e := &ethernet{Match: match{f.MAC.String()}, Name: f.Device, Optional: true}
		if f.MTU != topology.MTU {
			e.MTU = f.MTU
		}
		for _, a := range f.Addresses {
			e.Addresses = append(e.Addresses, a.String())
		}
		for _, r := range routesAt(n, f, interfaces) {
			e.Routes = append(e.Routes, route{r.To.String(), r.Via.String(), int(r.Distance)})
		}
		ethernets[f.Device] = e
	}
	if !n.Guest.Unmanaged {
		ethernets[topology.GuestManagement] = &ethernet{Match: match{topology.GuestManagementMAC.String()},
			Name:      topology.GuestManagement,
			Addresses: []string{managementAddress}, Optional: true}
	}
	return map[string]any{"version": 2, "ethernets": ethernets}
}
