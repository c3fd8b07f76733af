package bench

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// stars are the sizes of the labs of TestContainerlab, in containers.
var stars = []int{10, 50, 100}

// clabBridge is the bridge of those labs. containerlab expects it to be there, on the machine.
const clabBridge = "tvclab0"

// TestContainerlab compares up and down of containers at a bridge with what containerlab takes for
// the same file, and with what the engine alone needs to make, start and look at as many
// containers, as many at a time, and to remove them: all with a Docker engine that the test starts,
// in turn. The bridge, which containerlab expects to be there, is made before the time begins;
// Trivet makes its own within.
//
// containerlab is the program that CONTAINERLAB names, else the one on the PATH, else the one that
// scripts/peers --containerlab has built; without any the test compares Trivet with Docker alone.
// TRIVET_BESIDE is another program of Trivet's to measure in the same pairs. STARS is a list of
// sizes in place of 10,50,100.
//
// The machine needs dockerd, iproute2 and BusyBox. On a kernel without modules containerlab wants
// the change that scripts/peers makes. Where the kernel, or the bounding set of what runs this,
// lacks a capability that Docker gives to containers, runc refuses to start any, be it for whom it
// may.
func TestContainerlab(t *testing.T) {
	for _, program := range []string{"dockerd", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed (scripts/bootstrap --docker)")
		}
	}
	sizes := stars
	if list := os.Getenv("STARS"); list != "" {
		sizes = nil
		for _, word := range strings.Split(list, ",") {
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatalf("STARS: %v", err)
			}
			sizes = append(sizes, n)
		}
	}
	load(t)
	dir := t.TempDir()
	engine := ownDocker(t, dir)
	busyboxImage(t, engine)
	programs := []string{binary}
	if beside := os.Getenv("TRIVET_BESIDE"); beside != "" {
		programs = append(programs, beside)
	}
	clab, err := exec.LookPath(cmp.Or(os.Getenv("CONTAINERLAB"), "containerlab"))
	if err != nil && os.Getenv("CONTAINERLAB") == "" {
		clab, err = exec.LookPath(cached("containerlab", "containerlab"))
	}
	if err != nil {
		t.Logf("containerlab is not measured: %v", err)
	}
	file := func(n int) string {
		t.Helper()
		name := filepath.Join(dir, fmt.Sprintf("star%d.clab.yml", n))
		if err := os.WriteFile(name, []byte(star(n)), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, p := range programs { // so that all has been read once
		starred(t, p, file(2))
	}
	for _, n := range sizes {
		compareStar(t, engine, programs, clab, file(n), n)
	}
}

// compareStar measures one size.
func compareStar(t *testing.T, engine *client.Client, programs []string, clab, file string, n int) {
	t.Helper()
	ups, downs := make([][]float64, len(programs)), make([][]float64, len(programs))
	var made, removed, deploys, destroys []float64
	for range *pairs {
		for i, p := range programs {
			up, down := starred(t, p, file)
			ups[i], downs[i] = append(ups[i], up), append(downs[i], down)
		}
		if clab != "" {
			up, down := deployed(t, clab, file)
			deploys, destroys = append(deploys, up), append(destroys, down)
		}
		m, r := bareContainers(t, engine, "bench:1", n, nil)
		made, removed = append(made, m), append(removed, r)
	}
	t.Logf("%d containers, %d pairs: Docker alone %s, removed %s", n, *pairs, text(made, "s"), text(removed, "s"))
	for i, p := range programs {
		t.Logf("  trivet up %s, ÷ Docker %s   down %s, ÷ Docker %s   (%s)", text(ups[i], "s"), text(ratios(ups[i], made), "×"),
			text(downs[i], "s"), text(ratios(downs[i], removed), "×"), p)
	}
	if clab == "" {
		return
	}
	t.Logf("  containerlab deploy %s, ÷ Docker %s, ÷ Trivet %s   destroy %s, ÷ Docker %s, ÷ Trivet %s",
		text(deploys, "s"), text(ratios(deploys, made), "×"), text(ratios(deploys, ups[0]), "×"),
		text(destroys, "s"), text(ratios(destroys, removed), "×"), text(ratios(destroys, downs[0]), "×"))
}

// starred returns how long a program of Trivet's takes for a file.
func starred(t *testing.T, program, file string) (up, down float64) {
	t.Helper()
	defer func(was string) { binary = was }(binary)
	binary = program
	return timed(t, "up", file, "--run-commands", "--name", "star"), timed(t, "down", "star")
}

// star is a containerlab file of containers at a bridge.
func star(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: star%d\nmgmt: {external-access: false, skip-when-unused: true}\ntopology:\n  kinds:\n", n)
	b.WriteString("    linux: {image: \"bench:1\", cmd: sleep 1000, network-mode: none, privileged: false, cap-add: [NET_ADMIN]}\n")
	fmt.Fprintf(&b, "  nodes:\n    %s: {kind: bridge}\n", clabBridge)
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "    h%d: {kind: linux, exec: [ip addr add 10.0.0.%d/24 dev eth1]}\n", i, i)
	}
	b.WriteString("  links:\n")
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "    - endpoints: [\"h%d:eth1\", \"%s:tvclab%d\"]\n", i, clabBridge, i)
	}
	return b.String()
}

// deployed returns how long containerlab takes for a file.
func deployed(t *testing.T, clab, file string) (up, down float64) {
	t.Helper()
	run := func(words ...string) float64 {
		t.Helper()
		start := time.Now()
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir = filepath.Dir(file)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
		}
		return time.Since(start).Seconds()
	}
	run("ip", "link", "add", clabBridge, "type", "bridge")
	defer run("ip", "link", "delete", clabBridge)
	run("ip", "link", "set", clabBridge, "up")
	return run(clab, "deploy", "-t", file), run(clab, "destroy", "--cleanup", "-t", file)
}

// ownDocker starts a Docker engine for the test, which DOCKER_HOST names.
func ownDocker(t *testing.T, dir string) *client.Client {
	t.Helper()
	socket := filepath.Join(dir, "docker.sock")
	options := []string{"--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=none", "--data-root", dir + "/docker",
		"--exec-root", dir + "/exec", "--pidfile", dir + "/docker.pid", "--host", "unix://" + socket}
	cmd := exec.Command("dockerd", options...)
	log, err := os.Create(dir + "/docker.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	return answering(t, socket)
}

// busyboxImage gives an engine the image bench:1, which is BusyBox.
func busyboxImage(t *testing.T, engine *client.Client) {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	add := func(h tar.Header, text []byte) {
		t.Helper()
		h.Size = int64(len(text))
		if err := out.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, program)
	for _, name := range []string{"sh", "ip", "sleep"} {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox"}, nil)
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755}, nil)
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	imported, err := engine.ImageImport(t.Context(), client.ImageImportSource{Source: &archive, SourceName: "-"}, "bench:1", client.ImageImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer imported.Close()
	var said bytes.Buffer
	if _, err := said.ReadFrom(imported); err != nil {
		t.Fatal(err)
	}
}
