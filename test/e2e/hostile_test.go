package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// hostileSwitch is a switch of OpenFlow 1.3 whose ports have names that would command a terminal,
// with a host at one, which sends ARP with each answer.
const hostileSwitch = `
import socket, struct, sys, time
NAME = b'\x1b[2Jp\xe2\x80\xae\n\xc2\x9b'
s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
def say(kind, xid, body=b''): s.sendall(struct.pack('!BBHI', 4, kind, 8 + len(body), xid) + body)
def port(n): return struct.pack('!I4x6s2x16s8I', n, bytes([2, 0, 0, 0, 0, n]), NAME, 0, 0, 0, 0, 0, 0, 0, 0)
def take(n):
    b = b''
    while len(b) < n:
        more = s.recv(n - len(b))
        if not more: sys.exit()
        b += more
    return b
mac = bytes([2, 0, 0, 0, 1, 1])
arp = b'\xff' * 6 + mac + b'\x08\x06' + struct.pack('!HHBBH', 1, 0x800, 6, 4, 1) + mac + bytes([10, 0, 0, 1]) + bytes(6) + bytes([10, 0, 0, 2])
arp += bytes(60 - len(arp))
say(0, 1)
while True:
    version, kind, length, xid = struct.unpack('!BBHI', take(8))
    body = take(length - 8)
    if kind == 2: say(3, xid, body)
    elif kind == 5: say(6, xid, struct.pack('!QIBB2xII', 0xbad, 0, 1, 0, 0, 0))
    elif kind == 7: say(8, xid, struct.pack('!HH', 0, 0xffff))
    elif kind == 24: say(25, xid, body)
    elif kind == 20: say(21, xid)
    elif kind == 18:
        what = struct.unpack('!H', body[:2])[0]
        say(19, xid, struct.pack('!HH4x', what, 0) + {13: port(1) + port(2), 2: bytes(24), 0: struct.pack('!256s256s256s32s256s', *[NAME] * 5)}.get(what, b''))
        say(10, 0, struct.pack('!IHBBQ', 0xffffffff, len(arp), 0, 0, 0) + struct.pack('!HHII4x', 1, 12, 0x80000004, 1) + b'\0\0' + arp)
`

// commands says where a text holds what a terminal may take for a command, or nothing.
func commands(text string) string {
	for i, r := range text {
		if !unicode.IsGraphic(r) && r != '\n' && r != '\t' {
			return text[max(0, i-40):min(len(text), i+20)]
		}
	}
	return ""
}

// TestHostileNames proves that nothing that a switch or a file calls itself commands the terminal,
// or looks like another line: not in tables, messages, errors, pictures, logs or JSON.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	end := m.controllerUp([]string{"controller", "--listen", "tcp:127.0.0.1:6699", "--api", "tcp:127.0.0.1:6680", "--token-file", m.dir + "/token"})
	defer end()
	python := m.command("/usr/bin/python3", m.file("switch.py", hostileSwitch), "6699")
	said := m.startOutput(python)
	defer func() { _ = python.Process.Kill() }()
	api := []string{"--api", "tcp:127.0.0.1:6680", "--token-file", m.dir + "/token"}
	eventually(t, "the host at the switch is known", func() bool {
		if ended(python) {
			t.Fatal(said)
		}
		return strings.Contains(m.run(append([]string{"hosts"}, api...)...).out, "10.0.0.1")
	})
	check := func(what string, text string) {
		t.Helper()
		if at := commands(text); at != "" {
			t.Errorf("%s lets a control character pass: %q", what, at)
		}
	}
	for _, args := range [][]string{{"hosts"}, {"hosts", "--json"}, {"flows"}, {"flows", "--json"}, {"top", "--once"}, {"top", "--once", "--json"}, {"history"}, {"path", "02:00:00:00:01:01", "02:00:00:00:01:02"}} {
		r := m.run(append(args, api...)...)
		check("trivet "+strings.Join(args, " "), r.out+r.err)
		if args[0] == "hosts" && len(args) == 1 {
			contains(t, r.out, `\x1b[2Jp\u202e\n\u009b`)
		}
	}
	check("the controller's log", m.sh("cat "+m.dir+"/controller.txt"))

	const name = "x\x1b[2J\u202e\u009b"
	quoted := `"x\e[2J\u202e\x9b\n"`
	bad := m.file("bad.yaml", "name: "+quoted+"\nnodes: {h1: host, "+quoted+": host}\nlinks: [h1 -- "+quoted+", h1 -- nobody: {delay: "+quoted+", "+quoted+": 1}]\n")
	named := m.file("named.yaml", "name: "+quoted+"\nnodes: {h1: {host: {start: "+quoted+"}}, h2: host}\nlinks: [h1 -- h2]\n")
	mininet := m.file("bad.py", "from mininet.net import Mininet\nnet = Mininet()\nnet.addHost('"+name+"')\nnet.start()\nraise Exception('"+name+"')\n")
	for _, file := range []string{bad, named, mininet} {
		for _, args := range [][]string{{"validate", file}, {"validate", "--json", file}, {"inspect", file}, {"inspect", "--json", file}, {"graph", file}, {"graph", "--json", file},
			{"up", file}, {"up", file + name}, {name}, {"inspect", "--lab", name}} {
			r := m.run(args...)
			if strings.HasPrefix(r.out, `x\x1b`) {
				contains(t, r.out, `x\x1b[2J\u202e\u009b\n  not up`)
			}
			check("trivet "+strings.Join(args[:1], " ")+" "+filepath.Base(file), r.out+r.err)
			if args[0] == "up" && r.code == 0 {
				r = m.run("ls")
				check("ls", r.out+r.err)
				check("logs", m.ok("logs"))
				m.ok("down")
			}
		}
	}
	for _, ending := range []string{".svg", ".dot"} {
		m.ok("graph", named, "-o", m.dir+"/picture"+ending)
		check("graph "+ending, m.sh("cat "+m.dir+"/picture"+ending))
	}
}
