package openstack

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"golang.org/x/crypto/ssh"

	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/site"
)

// keys are the SSH keys of a lab's instances: one to log in to all of them, and a host key for
// each. They are made here, so that no host key has to be trusted on first use.
type keys struct {
	file  string // private key to log in with
	login string // its public key, as in authorized_keys
	hosts map[string]pair
}

type pair struct{ private, public string }

// keysDir holds the private keys of labs, below the user's home.
const keysDir = ".cache/trivet/openstack"

func keyFile(u *site.User, key string) string { return filepath.Join(u.Home(), keysDir, key) }

// newKeys makes the keys, and writes the private key for logins to a file.
func newKeys(u *site.User, al site.Allocation, instances []*site.Machine) (k keys, err error) {
	own, err := newPair(al.Key)
	if err != nil {
		return k, err
	}
	k = keys{file: keyFile(u, al.Key), login: own.public, hosts: map[string]pair{}}
	for _, m := range instances {
		if k.hosts[m.Name], err = newPair(m.Name); err != nil {
			return k, err
		}
	}
	return k, asuser.Do(func() error {
		if err := os.MkdirAll(filepath.Dir(k.file), 0o700); err != nil {
			return err
		}
		return os.WriteFile(k.file, []byte(own.private), 0o600)
	})
}

func newPair(comment string) (p pair, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return p, err
	}
	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return p, err
	}
	line, err := ssh.NewPublicKey(public)
	return pair{string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(line)))}, err
}

func (k keys) hostKey(name string) string { return k.hosts[name].public }

// userData returns the cloud-init configuration of an instance
// (https://cloudinit.readthedocs.io/en/latest/reference/modules.html#ssh), with its own user data.
func (k keys) userData(name string, own []byte) ([]byte, error) {
	return mergeUserData(map[string]any{
		logins:           []string{k.login},
		"ssh_deletekeys": true,
		"ssh_keys": map[string]string{"ed25519_private": k.hosts[name].private,
			"ed25519_public": k.hosts[name].public},
		"hostname": name,
	}, own)
}

// userOf returns the default user of an image, as far as it is known: distributions name it after
// themselves.
func userOf(i images.Image) string {
	for _, key := range []string{"default_user", "os_admin_user", "image_original_user"} {
		if s, ok := i.Properties[key].(string); ok && s != "" {
			return s
		}
	}
	about := strings.ToLower(fmt.Sprint(i.Name, " ", i.Properties["os_distro"]))
	for _, name := range []string{"debian", "ubuntu", "fedora", "centos", "rocky", "almalinux", "arch", "opensuse",
		"cirros"} {
		if strings.Contains(about, name) {
			return name
		}
	}
	return "root"
}
