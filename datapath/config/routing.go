package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"trivet.dev/trivet/datapath"
	"trivet.dev/trivet/datapath/routerd"
	"trivet.dev/trivet/topology"
)

func init() {
	keep := func(_ context.Context, _ datapath.Running, was string) (string, error) { return was, nil }
	datapath.RegisterConfig(datapath.Config{Kind: topology.ConfigFRR, Check: checkFRR, Try: tryFRR, Read: readRouting})
	datapath.RegisterConfig(datapath.Config{Kind: topology.ConfigDaemons, Check: checkDaemons, Read: keep})
	datapath.RegisterConfig(datapath.Config{Kind: topology.ConfigBIRD, Check: checkBIRD, Try: tryBIRD,
		Read: readRouting})
}

func readRouting(ctx context.Context, in datapath.Running, was string) (string, error) {
	if f, ok := in.Fabric.(datapath.Routed); ok {
		return f.OwnRouting(ctx, in.Node)
	}
	return was, nil
}

// checkFRR refuses commands that vtysh would execute rather than load as configuration, and files
// outside the directory of logs.
func checkFRR(_ *topology.Topology, n *topology.Node, c topology.ConfigFile) (problems topology.Problems) {
	bad := complain(n, c, &problems)
	logs := routerd.Of(topology.FRR).Logs + "/"
	for i, line := range strings.Split(c.Text, "\n") {
		for k, word := range strings.Fields(line) {
			if k == 0 && word == "do" {
				bad(i+1, "leave it out", "do: commands are not part of a configuration")
			}
			if k == 0 && strings.ContainsAny(word[:1], "!#") || strings.HasPrefix(word, "desc") { // free text
				break
			}
			path := strings.HasPrefix(word, "/") || strings.Contains(word, "../")
			if path && (!strings.HasPrefix(word, logs) || strings.Contains(word, "..")) {
				bad(i+1, "name a file below "+logs, "%.60s: no file elsewhere is read or written", word)
			}
		}
	}
	return problems
}

// tryFRR has vtysh check the syntax; errors that only a running daemon finds are reported on
// loading.
func tryFRR(ctx context.Context, n *topology.Node, c topology.ConfigFile) error {
	f := routerd.Of(topology.FRR)
	client, err := f.ClientPath()
	if err != nil {
		return nil // another check reports that it is missing
	}
	return tryFiles(ctx, n, c, f, map[string]string{routerd.FRRFile: c.Text, "vtysh.conf": ""},
		func(dir string) []string {
			return []string{client, "--config_dir", dir, "--vty_socket", dir, "-C", "-f",
				filepath.Join(dir, routerd.FRRFile)}
		})
}

func checkDaemons(_ *topology.Topology, n *topology.Node, c topology.ConfigFile) (problems topology.Problems) {
	bad := complain(n, c, &problems)
	routerd.ParseDaemons(c.Text, func(line int, hint, what string) { bad(line, hint, "%s", what) })
	return problems
}

// checkBIRD refuses references to other files: include, and paths.
func checkBIRD(_ *topology.Topology, n *topology.Node, c topology.ConfigFile) (problems topology.Problems) {
	bad := complain(n, c, &problems)
	birdFiles(c.Text, bad)
	return problems
}

// birdFiles finds the lines on which a configuration of BIRD names files: by the word include,
// outside of comments and quotes, or by a path in quotes (BIRD's user's guide, section 3.1).
func birdFiles(text string, bad func(line int, hint, format string, args ...any)) {
	line, word := 1, ""
	end := func() {
		if word == "include" {
			bad(line, "write here what the file says", "include: no other file is read")
		}
		word = ""
	}
	for i := 0; i < len(text); i++ {
		rest, length := text[i:], 1 // length of a token that contains no words
		switch c := text[i]; {
		case c == '#':
			length = lengthTo(rest, 1, "\n")
		case strings.HasPrefix(rest, "/*"):
			length = lengthTo(rest, 2, "*/")
		case c == '"' || c == '\'':
			length = lengthTo(rest, 1, string(c))
		case c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9':
			if len(word) <= len("include") { // a longer word is another one
				word += string(c)
			}
			continue
		}
		end()
		if quoted := rest[:length]; strings.HasPrefix(quoted, `"/`) {
			bad(line, "write log stderr all;, which trivet logs shows",
				"%.60s: a path: no file but this one is read or written", quoted)
		}
		line += strings.Count(rest[:length], "\n")
		i += length - 1
	}
	end()
}

// lengthTo returns the length of a text up to the end of a mark, which is searched from an offset
// on; the whole length if it does not occur.
func lengthTo(text string, from int, mark string) int {
	if n := strings.Index(text[from:], mark); n >= 0 {
		return from + n + len(mark)
	}
	return len(text)
}

// tryBIRD has BIRD itself check a configuration.
func tryBIRD(ctx context.Context, n *topology.Node, c topology.ConfigFile) error {
	f := routerd.Of(topology.BIRD)
	program, err := f.Path("bird")
	if err != nil {
		return nil // another check reports that it is missing
	}
	return tryFiles(ctx, n, c, f, map[string]string{"bird.conf": c.Text}, func(dir string) []string {
		return []string{program, "-p", "-c", filepath.Join(dir, "bird.conf")}
	})
}

// tryFiles has a program of a family check files, as the unprivileged user that it runs as; nobody
// else can read them, as they may contain keys.
func tryFiles(ctx context.Context, n *topology.Node, c topology.ConfigFile, f *routerd.Family, files map[string]string,
	command func(dir string) []string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := f.IDs()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/tmp", "trivet-config-") // not TMPDIR: it may be root's only
	if err != nil {
		return fmt.Errorf("check the configuration of %s: %w", n.Name, err)
	}
	defer os.RemoveAll(dir)
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), os.Lchown(file, uid, gid)); err != nil {
			return fmt.Errorf("check the configuration of %s: %w", n.Name, err)
		}
	}
	if err := os.Lchown(dir, uid, gid); err != nil {
		return fmt.Errorf("check the configuration of %s: %w", n.Name, err)
	}
	said, err := alone(ctx, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, "", command(dir)...)
	if err == nil {
		return nil
	}
	return complained(n, c, strings.ReplaceAll(said, dir+"/", ""), err)
}
