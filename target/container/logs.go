package container

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// OutputLog is the log of a container's output, in its directory.
const OutputLog = "output.log"

// keepsNone is the content of that log if the engine keeps none.
const keepsNone = "The engine keeps no logs of this container: its log driver is none, or one that cannot be read.\n"

// follow starts to copy a container's output to its log, and reports to the lab when it ends by
// itself. It does nothing if that is under way.
func (k *containers) follow(n *topology.Node) error {
	r, err := k.of(n)
	if err != nil || r.followed.Load() {
		return err
	}
	engine, err := k.engine()
	if err != nil || r.followed.Swap(true) {
		return err
	}
	r.since = time.Now()
	go func() {
		for {
			err := k.copyLogs(engine, n, r)
			if r.unlogged || errdefs.IsNotImplemented(err) {
				_ = os.WriteFile(filepath.Join(k.dir(n.Name), OutputLog), []byte(keepsNone), 0o600)
				for r.runs() && !r.removed.Load() {
					time.Sleep(time.Second)
				}
			}
			if r.removed.Load() || k.closed.Load() { // do not ask an engine that is removing a lab
				return
			}
			if !r.runs() {
				if status, said, known := k.status(r); known {
					k.ended(n, r, status, said)
				}
				return
			}
			if <-wakeUp(); err != nil { // the engine was restarted, or is about to be
				if again, err := k.engine(); err == nil {
					engine = again
				}
			}
		}
	}()
	return nil
}

// copyLogs writes a container's output, from its beginning, to the log until the container ends.
func (k *containers) copyLogs(engine *client.Client, n *topology.Node, r *running) error {
	logs, err := engine.ContainerLogs(context.Background(), r.id,
		client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		return err
	}
	defer logs.Close()
	f, err := os.OpenFile(filepath.Join(k.dir(n.Name), OutputLog), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND,
		0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, logs)
	return err
}

// unknownStatus is the exit status of a container whose status is unknown: it counts as failed.
const unknownStatus = -1

// status returns a container's exit status. It asks the engine until that answers, or the container
// is removed or the lab closed.
func (k *containers) status(r *running) (status int, said string, known bool) {
	for knows := patience.Engine.Begin(); !r.removed.Load() && !k.closed.Load(); <-wakeUp() {
		engine, err := k.engine()
		if err != nil {
			continue
		}
		ctx, cancel := patience.Engine.Context(context.Background())
		is, err := engine.ContainerInspect(ctx, r.id, client.ContainerInspectOptions{})
		cancel()
		switch state := is.Container.State; {
		case errdefs.IsNotFound(err):
			return unknownStatus, " (it is not there any more)", true
		case err != nil || state == nil:
			knows = patience.Engine.Begin()
		case !state.Running:
			return state.ExitCode, fmt.Sprintf(" (exit status %d)", state.ExitCode), true
		case knows.Over(): // the process that reports it was killed, too
			return unknownStatus, "", true
		}
	}
	return 0, "", false
}

// lastWords returns the end of a container's output.
func lastWords(ctx context.Context, engine *client.Client, id string) string {
	logs, err := engine.ContainerLogs(ctx, id,
		client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "5"})
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, _ := io.ReadAll(io.LimitReader(logs, 4096))
	return cmp.Or(strings.TrimSpace(string(text)), "it printed nothing")
}
