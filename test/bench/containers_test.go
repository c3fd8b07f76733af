package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	engineapi "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/test/until"
)

const containersLab = `
nodes:
  "h[1-100]": {host: {image: "localhost/bench:1", cmd: sleep 1000}}
  s1: {switch: {datapath: bridge}}
links: ["s1 -- h[1-100]"]
`

// TestContainers compares bringing up a hundred containers at a switch with what the engine alone
// needs to make, start and look at a hundred, as many at a time, pair by pair. TRIVET_BESIDE is
// another program to measure in the same pairs.
func TestContainers(t *testing.T) {
	if _, err := exec.LookPath("podman"); err != nil {
		t.Skip("Podman is not installed")
	}
	load(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	t.Setenv("CONTAINERS_STORAGE_CONF", write("storage.conf", fmt.Sprintf("[storage]\ndriver = \"overlay\"\ngraphroot = \"%s/podman\"\nrunroot = \"%s/run\"\n", dir, dir)))
	t.Cleanup(func() { _ = unix.Unmount(dir+"/podman/overlay", unix.MNT_DETACH) }) // Podman leaves it mounted
	write("image/Dockerfile", "FROM scratch\nCOPY busybox /bin/busybox\nRUN [\"/bin/busybox\", \"--install\", \"-s\", \"/bin\"]\nRUN mkdir -p /etc\n")
	if out, err := exec.Command("sh", "-c", "cp /bin/busybox "+dir+"/image && podman build -q -t localhost/bench:1 "+dir+"/image").CombinedOutput(); err != nil {
		t.Fatalf("build an image: %v\n%s", err, out)
	}
	file := write("lab.yaml", containersLab)
	programs := []string{binary}
	if beside := os.Getenv("TRIVET_BESIDE"); beside != "" {
		programs = append(programs, beside)
	}
	up := func(program string) float64 {
		defer func(was string) { binary = was }(binary)
		binary = program
		took := timed(t, "up", file, "--name", "contained")
		timed(t, "down", "contained")
		return took
	}
	timed(t, "up", file, "--name", "contained") // so that all have been read once
	noted, err := os.ReadFile(filepath.Join(os.Getenv("TRIVET_RUN_DIR"), "contained", "engine.json"))
	if err != nil {
		t.Fatal(err)
	}
	timed(t, "down", "contained")
	var engine struct{ Program []string }
	if err := json.Unmarshal(noted, &engine); err != nil {
		t.Fatal(err)
	}
	if len(engine.Program) == 0 {
		t.Skip("an engine that serves others, too, is no measure")
	}
	took, alone := make([][]float64, len(programs)), []float64{}
	for range *pairs {
		for i, p := range programs {
			took[i] = append(took[i], up(p))
		}
		alone = append(alone, engineAlone(t, dir, engine.Program))
	}
	t.Logf("100 containers  the engine alone %s", text(alone, "s"))
	for i, p := range programs {
		t.Logf("100 containers  trivet up %s   trivet/engine %s   (%s)", text(took[i], "s"), text(ratios(took[i], alone), "×"), p)
	}
}

// engineAlone returns how long a Podman that serves takes for a hundred containers, which are then
// removed.
func engineAlone(t *testing.T, dir string, podman []string) float64 {
	t.Helper()
	socket := filepath.Join(dir, "podman.sock")
	_ = os.Remove(socket)
	service := exec.Command(podman[0], append(podman[1:len(podman):len(podman)], "system", "service", "--time", "0", "unix://"+socket)...)
	service.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = service.Process.Kill(); _ = service.Wait() }()
	engine := answering(t, socket)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	files := int64(min(limit.Max, 1<<20))
	made, _ := bareContainers(t, engine, "localhost/bench:1", 100, []*engineapi.Ulimit{
		{Name: "nofile", Soft: files, Hard: files}, {Name: "nproc", Soft: 1000, Hard: 1000}})
	return made
}

// answering connects to an engine, once it answers.
func answering(t *testing.T, socket string) *client.Client {
	t.Helper()
	engine, err := client.New(client.WithHost("unix://" + socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	until.True(t, "the engine answers", func() bool { _, err := engine.Ping(t.Context(), client.PingOptions{}); return err == nil })
	return engine
}

// bareContainers returns how long an engine takes to make, start and look at containers, as many at
// a time as Trivet does, and to remove them.
func bareContainers(t *testing.T, engine *client.Client, image string, count int, limits []*engineapi.Ulimit) (made, removed float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	options := client.ContainerCreateOptions{
		Config:     &engineapi.Config{Image: image, Tty: true, OpenStdin: true, Cmd: []string{"sleep", "1000"}},
		HostConfig: &engineapi.HostConfig{NetworkMode: "none", Resources: engineapi.Resources{Ulimits: limits}},
	}
	ids := make([]string, count)
	each := func(step func(id *string) error) float64 {
		t.Helper()
		of := make([]*string, len(ids))
		for i := range ids {
			of[i] = &ids[i]
		}
		start := time.Now()
		if err := parallel.Each(of, step); err != nil {
			t.Fatal(err)
		}
		return time.Since(start).Seconds()
	}
	made = each(func(id *string) error {
		made, err := engine.ContainerCreate(ctx, options)
		if err != nil {
			return err
		}
		*id = made.ID
		if _, err := engine.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
			return err
		}
		is, err := engine.ContainerInspect(ctx, made.ID, client.ContainerInspectOptions{})
		if err == nil && !is.Container.State.Running {
			err = fmt.Errorf("%s does not run", strings.Join(is.Container.Config.Cmd, " "))
		}
		return err
	})
	removed = each(func(id *string) error {
		_, err := engine.ContainerRemove(ctx, *id, client.ContainerRemoveOptions{Force: true})
		return err
	})
	return made, removed
}
