package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// filesLab has containers with a file of each node's own, one that two share, a text, and one that
// is a program.
const filesLab = `# by hand
nodes:
  web[1-2]:  # two
    host:
      build: ./image
      cmd: sh -c 'cat /etc/app/app.conf > /tmp/seen; /opt/bin/hello >> /tmp/seen; exec sleep 1d'
      files:
        /etc/app/app.conf: web/*.conf
        /etc/motd: web/motd
        /opt/bin/hello: web/hello
  r1:
    router:
      build: ./image
      datapath: kernel
      files:
        /etc/text: |  # as it is
          one

          two
  h1: host
links: [web1 -- r1, web2 -- r1, h1 -- r1]
`

// filesMachine has the files of filesLab.
func filesMachine(t *testing.T, m *machine) (file string) {
	t.Helper()
	m.image("image")
	must(t, os.Mkdir(filepath.Join(m.dir, "web"), 0o755))
	for name, text := range map[string]string{"web1.conf": "first\n", "web2.conf": "second\n", "motd": "welcome\n", "hello": "#!/bin/sh\necho hello\n"} {
		m.file("web/"+name, text)
	}
	must(t, os.Chmod(filepath.Join(m.dir, "web", "hello"), 0o755))
	must(t, os.Chmod(filepath.Join(m.dir, "web", "web1.conf"), 0o640))
	return m.file("lab.yaml", filesLab)
}

// TestContainerFiles proves, with each engine, that containers have the files that the topology
// gives them before their programs begin, with their permissions; that apply puts a changed one
// there again in the same container, also after the daemon has died and been resumed, and puts the
// old one back where it fails; and that save writes what is there into the files that the topology
// names, or into the text in it, a file of its own where two share one: the lab then comes up as it
// was.
func TestContainerFiles(t *testing.T) {
	for name, with := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			list := with(t, m)
			file := filesMachine(t, m)
			read := func(name string) string {
				t.Helper()
				text, err := os.ReadFile(filepath.Join(m.dir, name))
				must(t, err)
				return string(text)
			}
			contains(t, m.up(file), "7 files put into nodes", "up in")
			for node, word := range map[string]string{"web1": "first", "web2": "second"} {
				eventually(t, node+" has read its files", func() bool { return m.exec(node, "cat /tmp/seen") == word+"\nhello" })
			}
			contains(t, m.exec("web1", "ls -ln /etc/app /opt/bin"), "-rw-r-----    1 0        0                6", "-rwxr-xr-x    1 0        0               21")
			contains(t, m.exec("r1", "cat /etc/text; ls -l /etc/text"), "one\n\ntwo\n-rw-r--r--")
			contains(t, m.ok("save", "--dry-run"), "nothing to save")

			was := list()
			m.file("web/motd", "welcome back\n")
			m.file("lab.yaml", strings.Replace(filesLab, "  h1: host", "  h1: {host: {start: exit 3}}", 1))
			m.want(1, "apply", file)
			if got := m.exec("web1", "cat /etc/motd"); got != "welcome" {
				t.Errorf("after a change that failed the container has %q", got)
			}
			m.killDaemon()
			m.ok("resume")
			m.file("lab.yaml", filesLab)
			contains(t, m.ok("apply", "--dry-run", file), "files./etc/motd 8 bytes, mode 0644")
			m.ok("apply", file)
			if got := m.exec("web2", "cat /etc/motd"); got != "welcome back" || list() != was {
				t.Errorf("a changed file is %q in containers %s, which were %s", got, list(), was)
			}

			m.exec("web1", "echo third > /etc/app/app.conf; chmod 600 /etc/app/app.conf; echo mine > /etc/motd; chmod 700 /opt/bin/hello")
			m.exec("r1", "printf 'one\\n\\n  three: [\\n' > /etc/text")
			before := read("lab.yaml")
			contains(t, m.ok("save", "--dry-run"), "-first\n+third\n", "web/web1.conf: mode 0640 → 0600\n", "-welcome back\n+mine\n", "lab.d/web1/opt/bin/hello: mode 0755 → 0700", "+            three: [\n")
			if read("lab.yaml") != before || read("web/web1.conf") != "first\n" {
				t.Error("a dry run writes files")
			}
			m.ok("save")
			contains(t, m.ok("save"), "nothing to save")
			contains(t, read("lab.yaml"), "# by hand", "/etc/text: |  # as it is\n          one\n\n            three: [\n", "lab.d/web1/etc/motd")
			if got := read("web/web1.conf") + read("web/motd") + read("lab.d/web1/etc/motd"); got != "third\nwelcome back\nmine\n" {
				t.Errorf("the files are\n%s", got)
			}
			for name, mode := range map[string]os.FileMode{"web/web1.conf": 0o600, "web/hello": 0o755, "lab.d/web1/opt/bin/hello": 0o700} {
				if info, err := os.Stat(filepath.Join(m.dir, name)); err != nil || info.Mode() != mode {
					t.Errorf("%s: %v %v", name, info.Mode(), err)
				}
			}
			m.ok("save", filepath.Join(m.dir, "new.yaml"))
			for _, file := range []string{file, filepath.Join(m.dir, "new.yaml")} {
				m.ok("down")
				m.up(file)
				if got := m.exec("web1", "cat /etc/app/app.conf /etc/motd; ls -l /opt/bin/hello /etc/app/app.conf"); !strings.HasPrefix(got, "third\nmine\n-rw-------") || !strings.Contains(got, "-rwx------") {
					t.Errorf("of %s the container has\n%s", file, got)
				}
				if got := m.exec("web2", "cat /etc/app/app.conf /etc/motd") + m.exec("r1", "cat /etc/text"); got != "second\nwelcome backone\n\n  three: [" {
					t.Errorf("of %s the containers have\n%s", file, got)
				}
				contains(t, m.ok("save", "--dry-run"), "nothing to save")
			}
			was = list()
			text := read("new.yaml")
			m.file("new.yaml", strings.Replace(text, ", /opt/bin/hello: new.d/web2/opt/bin/hello", "", 1))
			m.ok("apply", filepath.Join(m.dir, "new.yaml"))
			if list() == was || m.run("exec", "-n", "web2", "--", "ls", "/opt").code == 0 {
				t.Error("a file that is not given any more is there")
			}
			contains(t, m.ok("down"), "nothing left")
		})
	}
}

// TestContainerFilesHostile proves that a topology's file is put into nothing but its container,
// whatever links are in the image, and that save takes nothing but text of a size from there,
// whatever is in the place of a file: it says what, saves the others, and waits for none.
func TestContainerFilesHostile(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.withPodman()
	outside := m.file("outside/x", "the machine's\n")
	m.image("image", "RUN ln -s "+filepath.Dir(outside)+" /out && ln -s /../../../../../"+filepath.Dir(outside)+" /far && ln -s /proc/1/root/"+filepath.Dir(outside)+" /root1 && mkdir -p /shown && ln -s /shown /toshown && ln -s /etc/hosts /etc/other")
	m.file("shown/x", "shown\n")
	m.file("f", "given\n")
	lab := func(files string) string {
		return m.file("lab.yaml", "nodes:\n  h1: {host: {build: ./image, dirs: {/shown: './shown:ro'}, files: {"+files+"}}}\n  h2: host\nlinks: [h1 -- h2]\n")
	}
	for _, path := range []string{"/out/x", "/far/x", "/root1/x", "/toshown/x", "/etc/other"} {
		r := m.run("up", "--name", m.name, lab(path+": f"))
		hosts := ""
		if r.code == 0 {
			hosts = m.exec("h2", "cat /etc/hosts")
			m.ok("down")
		}
		for name, want := range map[string]string{"outside/x": "the machine's\n", "shown/x": "shown\n"} {
			if text, err := os.ReadFile(filepath.Join(m.dir, name)); err != nil || string(text) != want {
				t.Fatalf("%s: %s of the machine is %q: %v", path, name, text, err)
			}
		}
		if strings.Contains(hosts, "given") {
			t.Errorf("%s: the lab's names are\n%s", path, hosts)
		}
		if r.code != 0 && !strings.Contains(r.err, "h1: files: "+path) {
			t.Errorf("%s: %v", path, r)
		}
	}

	file := lab("/t/link: f, /t/pipe: f, /t/zero: f, /t/huge: f, /t/binary: f, /t/gone: f, /t/dir: f, /t/good: f2")
	m.file("f2", "given\n")
	m.up(file)
	m.exec("h1", "cd /t && rm link pipe zero gone dir && ln -s /etc/passwd link && mkfifo pipe && mkdir dir && dd if=/dev/zero of=huge bs=1M count=3 2>/dev/null && printf 'a\\377' > binary && echo good > good")
	m.sh("podman exec --privileged trivet-" + m.name + "-h1 mknod /t/zero c 1 5 || podman exec trivet-" + m.name + "-h1 mkfifo /t/zero")
	r := m.run("save")
	if r.code != 0 {
		t.Fatal(r)
	}
	for _, says := range []string{"h1: /t/link is a link now: it is not saved", "/t/pipe is no regular file any more", "/t/zero is no regular file", "/t/huge has 3145728 bytes now", "/t/binary is not text", "/t/gone is gone", "/t/dir is no regular file"} {
		contains(t, r.out+r.err, says)
	}
	for name, want := range map[string]string{"f": "given\n", "f2": "good\n"} {
		if text, _ := os.ReadFile(filepath.Join(m.dir, name)); string(text) != want {
			t.Errorf("%s is %q, not %q", name, text, want)
		}
	}

	for what, replace := range map[string]func(name string) error{
		"escapes":            func(name string) error { return os.Symlink("/etc/hostname", name) },
		"not a regular file": func(name string) error { return syscall.Mkfifo(name, 0o644) },
		"larger than 1 MiB":  func(name string) error { return os.WriteFile(name, make([]byte, 2<<20), 0o644) },
		"is not text":        func(name string) error { return os.WriteFile(name, []byte("a\xff"), 0o644) },
	} {
		name := filepath.Join(m.dir, "f2")
		must(t, os.Remove(name))
		must(t, replace(name))
		for _, command := range []string{"validate", "apply"} {
			if r := m.run(command, file); r.code != 1 || !strings.Contains(r.out+r.err, what) {
				t.Errorf("%s: %s says %v", what, command, r)
			}
		}
	}
	if got := m.exec("h1", "cat /t/good"); got != "good" {
		t.Errorf("after what was refused the container has %q", got)
	}
	m.ok("down")
}
