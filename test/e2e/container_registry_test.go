package e2e

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// registryUser may pull from the registry of a test, with this password.
const (
	registryAt       = "127.0.0.1:5000"
	registryUser     = "lab"
	registryPassword = "walnut-and-oak"
)

// withRegistry begins a registry that wants a login, and puts images there.
func (m *machine) withRegistry(engine string, images ...string) {
	m.t.Helper()
	if _, err := exec.LookPath("docker-registry"); err != nil {
		m.t.Fatal("docker-registry is not installed (make bootstrap)")
	}
	hash := strings.TrimSpace(m.sh("python3 -W ignore -c 'import crypt; print(crypt.crypt(\"" + registryPassword + "\", crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16)))'"))
	users := m.file("htpasswd", registryUser+":"+hash+"\n")
	config := m.file("registry.yml", fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %q}}\n"+
		"http: {addr: %q}\nauth: {htpasswd: {realm: test, path: %q}}\n", m.dir+"/registry", registryAt, users))
	server := m.command("docker-registry", "serve", config)
	log, err := os.Create(filepath.Join(m.dir, "registry.log"))
	must(m.t, err)
	m.t.Cleanup(func() { log.Close() })
	server.Stdout, server.Stderr = log, log
	must(m.t, m.start(server))
	eventually(m.t, "the registry listens", func() bool {
		return m.inside(func() error {
			conn, err := net.Dial("tcp", registryAt)
			if err == nil {
				conn.Close()
			}
			return err
		}) == nil
	})
	m.image("image")
	login := "podman login --authfile " + m.dir + "/admin.json"
	push := "podman push --authfile " + m.dir + "/admin.json"
	if engine == "docker" {
		login, push = "DOCKER_CONFIG="+m.dir+"/admin docker login", "DOCKER_CONFIG="+m.dir+"/admin docker push"
	} else {
		m.env = append(m.env, "CONTAINERS_REGISTRIES_CONF="+m.file("registries.conf", "[[registry]]\nlocation = \""+registryAt+"\"\ninsecure = true\n"))
	}
	m.sh(fmt.Sprintf("printf %%s %s | %s --username %s --password-stdin %s", registryPassword, login, registryUser, registryAt))
	for _, image := range images {
		name := registryAt + "/" + image
		m.sh(fmt.Sprintf("%s build -t %s image && %s %s && %s rmi %s", engine, name, push, name, engine, name))
	}
}

// TestContainerRegistry proves, with each engine, that images come from a registry that wants a
// login with that of the user who asked for the lab, where docker login, podman login or a program
// that keeps logins have it: as that user it is read, and the program run; also for what is built
// on such an image, and for `apply`. Without a login, with a wrong one, or with a file that is not
// the user's to read, `up` says so, and what to type, and nothing is left; the password is nowhere.
// What that user's HOME and session have besides, and sudo may keep, is not read or run as root;
// and what a RUN prints is not taken for a registry's word.
func TestContainerRegistry(t *testing.T) {
	for name, with := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			list := with(t, m)
			m.withRegistry(name, "lab/one", "lab/two", "lab/three")
			home := filepath.Join("/tmp", "trivet-logins-"+m.name) // of nobody, who has none and must get there
			must(t, os.Mkdir(home, 0o711))
			t.Cleanup(func() { os.RemoveAll(home) })
			as := func(args ...string) result {
				cmd := m.command(trivet, args...)
				cmd.Env = append(cmd.Env, "SUDO_UID=65534", "SUDO_GID=65534", "DOCKER_CONFIG="+home, "PATH="+home+":"+os.Getenv("PATH"),
					"HOME="+home, "XDG_RUNTIME_DIR="+home, "XDG_CONFIG_HOME="+home)
				return m.do(cmd)
			}
			planted := fmt.Sprintf(`{"credHelpers": {%q: "planted"}}`, registryAt)
			for _, file := range []string{".docker/config.json", "containers/auth.json", ".config/containers/auth.json"} {
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(home, file)), 0o755))
				must(t, os.WriteFile(filepath.Join(home, file), []byte(planted), 0o644))
			}
			must(t, os.WriteFile(filepath.Join(home, "docker-credential-planted"), []byte("#!/bin/sh\nid -u >> "+m.dir+"/planted\n"+
				`printf '{"ServerURL":"","Username":"`+registryUser+`","Secret":"`+registryPassword+`"}'`+"\n"), 0o755))
			config := filepath.Join(home, "config.json")
			write := func(owner int, text string) {
				must(t, os.WriteFile(config, []byte(text), 0o600))
				must(t, os.Chown(config, owner, owner))
			}
			entry := func(password string) string {
				return fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, registryAt, base64.StdEncoding.EncodeToString([]byte(registryUser+":"+password)))
			}
			one := fmt.Sprintf("nodes:\n  h1: {host: {image: %s/lab/one}}\n  h2: host\nlinks: [h1 -- h2]\n", registryAt)
			file := m.file("one.yaml", one)
			refused := func(words ...string) {
				t.Helper()
				r := as("up", "--name", m.name, file)
				if r.code == 0 {
					t.Fatal("it comes up: ", r)
				}
				contains(t, r.err, append(words, "registry "+registryAt+" wants a login", name+" login "+registryAt)...)
				if left := list(); left != "" {
					t.Errorf("left are the containers %s", left)
				}
			}
			refused("there is no file with logins of the lab's owner")
			write(65534, `{"auths": {"example.org": {"auth": "bGFiOng="}}}`)
			refused("none for it is in " + config)
			write(65534, entry("not the password"))
			refused("it refuses the one in " + config)
			write(0, entry(registryPassword))
			refused(config + ": permission denied")
			on := filepath.Join(m.dir, "on", "Dockerfile")
			must(t, os.Mkdir(filepath.Dir(on), 0o755))
			must(t, os.WriteFile(on, []byte("FROM "+registryAt+"/lab/three\n"), 0o644))
			m.file("one.yaml", "nodes:\n  h1: {host: {build: ./on}}\n")
			refused(config + ": permission denied")
			m.file("one.yaml", one)
			if who, err := os.ReadFile(m.dir + "/planted"); err == nil {
				t.Errorf("a program that the user's own files name has run as %s", who)
			}

			helper := filepath.Join(home, "docker-credential-kept")
			must(t, os.WriteFile(helper, []byte("#!/bin/sh\nread server\nid -u >&2; id -u > "+home+"/who/is; echo $1 $server >> "+home+"/who/is\n"+
				`printf '{"ServerURL":"%s","Username":"`+registryUser+`","Secret":"`+registryPassword+`"}' $server`+"\n"), 0o755))
			must(t, os.Mkdir(home+"/who", 0o755))
			must(t, os.Chown(home+"/who", 65534, 65534))
			write(65534, fmt.Sprintf(`{"credHelpers": {%q: "kept"}}`, registryAt))
			if r := as("up", "--name", m.name, file); r.code != 0 {
				t.Fatal(r)
			}
			if said, err := os.ReadFile(home + "/who/is"); string(said) != "65534\nget "+registryAt+"\n" {
				t.Errorf("the program that keeps the login ran as, and was asked: %q, %v", said, err)
			}

			write(65534, entry(registryPassword))
			must(t, os.WriteFile(on, []byte("ARG AT="+registryAt+"\nFROM $AT/lab/three\nRUN echo built > /tmp/built\n"), 0o644))
			m.file("one.yaml", strings.Replace(one, "h2: host\nlinks: [h1 -- h2]", fmt.Sprintf("h2: {host: {image: %s/lab/two}}\n  h3: {host: {build: ./on}}\nlinks: [h1 -- h2, h2 -- h3]", registryAt), 1))
			if r := as("apply", file); r.code != 0 {
				t.Fatal(r)
			}
			contains(t, m.exec("h3", "cat /tmp/built"), "built")
			must(t, os.WriteFile(on, []byte("FROM "+registryAt+"/lab/three\nRUN echo "+registryAt+" denied: 403 && exit 3\n"), 0o644))
			if r := as("apply", m.file("two.yaml", "nodes:\n  h1: {host: {build: ./on}}\n")); r.code == 0 || strings.Contains(r.err, "wants a login") || !strings.Contains(r.err, "denied: 403") {
				t.Error(r)
			}
			secret := base64.StdEncoding.EncodeToString([]byte(registryUser + ":" + registryPassword))
			if said := m.ok("inspect", "--json") + m.ok("logs") + m.sh("grep -rlE '"+registryPassword+"|"+secret+"' /run/trivet || true"); strings.Contains(said, registryPassword) || strings.Contains(said, "/run/trivet/") {
				t.Errorf("the login is known to the lab: %s", said)
			}
			contains(t, m.ok("down"), "nothing left")
		})
	}
}
