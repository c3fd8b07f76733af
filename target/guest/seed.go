package guest

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"trivet.dev/trivet/topology"
)

// What a guest's cloud-init reads is on a disk of its own (the data source NoCloud), whose files
// are in a directory of the machine's.
const seedDir, seedLabel = "seed", "CIDATA"

// mostUserData bounds what is read of a file of user data.
const mostUserData = 1 << 20

// userData is what the topology has for a guest's cloud-init; nil: nothing.
func userData(g *topology.Guest) ([]byte, error) {
	if g.UserData == "" {
		return nil, nil
	}
	if strings.Contains(g.UserData, "\n") {
		return []byte(g.UserData), nil
	}
	if err := isFile(g.UserData); err != nil {
		return nil, err
	}
	f, err := os.Open(g.UserData)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostUserData+1))
	if err == nil && len(b) > mostUserData {
		err = fmt.Errorf("%s is larger than 1 MB", g.UserData)
	}
	return b, err
}

// writeSeed writes what a guest's cloud-init reads, unless nothing in the machine can read it.
func (k *guests) writeSeed(n *topology.Node, interfaces []Interface) (wrote bool, err error) {
	g := n.Guest
	if g.Image == "" && g.UserData == "" {
		return false, nil
	}
	own, err := userData(g)
	if err != nil {
		return false, err
	}
	key, err := k.publicKey()
	if err != nil {
		return false, err
	}
	user, err := withKey(own, key)
	if err != nil {
		return false, err
	}
	meta, err := yaml.Marshal(map[string]any{"instance-id": fmt.Sprintf("trivet-%s-%s", k.Name, n.Name), "local-hostname": n.Name, "public-keys": []string{key}})
	if err != nil {
		return false, err
	}
	network, err := yaml.Marshal(networkConfig(n, interfaces))
	if err != nil {
		return false, err
	}
	dir := filepath.Join(k.dir(n.Name), seedDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	for name, text := range map[string][]byte{"meta-data": meta, "user-data": user, "network-config": network} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return false, err
		}
	}
	return true, nil
}

// withKey adds to a guest's user data that root is let in with a key. What the user says of users
// stays: lists are joined.
func withKey(own []byte, key string) ([]byte, error) {
	root := map[string]any{"name": "root", "ssh_authorized_keys": []string{key}}
	users := []any{"default", root}
	kind, cloudConfig := kindOf(own)
	if cloudConfig {
		var has struct {
			Users any `yaml:"users"`
		}
		if err := yaml.Unmarshal(own, &has); err != nil {
			return nil, fmt.Errorf("user data: %w", err)
		}
		if has.Users != nil {
			users = []any{root}
		}
	}
	text, err := yaml.Marshal(map[string]any{"disable_root": false, "users": users})
	if err != nil {
		return nil, err
	}
	ours := append([]byte("#cloud-config\n"), text...)
	switch {
	case len(own) == 0:
		return ours, nil
	case kind == "": // an archive of parts: see publicKey, which the default user gets in any case
		return own, nil
	}
	var out bytes.Buffer
	parts := multipart.NewWriter(&out)
	fmt.Fprintf(&out, "Content-Type: multipart/mixed; boundary=%q\nMIME-Version: 1.0\n\n", parts.Boundary())
	for _, part := range []struct {
		kind, merge string
		text        []byte
	}{{kind, "", own}, {"text/cloud-config", "list(append)+dict(no_replace,recurse_list)+str()", ours}} {
		header := textproto.MIMEHeader{"Content-Type": {part.kind + `; charset="utf-8"`}}
		if part.merge != "" {
			header.Set("Merge-Type", part.merge)
		}
		w, err := parts.CreatePart(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(part.text); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), parts.Close()
}

// kindOf is the MIME type of user data, from how it begins (cloud-init, "User data formats"); "":
// it is an archive of parts, or compressed.
func kindOf(text []byte) (kind string, cloudConfig bool) {
	for _, of := range []struct{ begins, kind string }{
		{"#cloud-config-archive", ""}, {"#cloud-config", "text/cloud-config"}, {"#cloud-boothook", "text/cloud-boothook"},
		{"#include", "text/x-include-url"}, {"## template: jinja", "text/jinja2"}, {"#!", "text/x-shellscript"},
	} {
		if bytes.HasPrefix(text, []byte(of.begins)) {
			return of.kind, of.kind == "text/cloud-config"
		}
	}
	return "", false
}

// networkConfig is what cloud-init calls a network configuration of version 2. The interfaces get
// the names that they have in the topology.
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
		ethernets["management"] = &ethernet{Match: match{managementMAC}, Name: "management", Addresses: []string{managementAddress}, Optional: true}
	}
	return map[string]any{"version": 2, "ethernets": ethernets}
}
