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

// OutputLog is the log of what a container prints, in its directory.
const OutputLog = "output.log"

// keepsNone is there in its place.
const keepsNone = "The engine keeps no logs of this container: its log driver is none, or one that cannot be read.\n"

// follow begins to write down what a container prints, and tells the lab when it has ended by
// itself. It does nothing where that is done already.
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
			if r.removed.Load() || k.closed.Load() { // else an engine that removes a lab's containers is asked for each
				return
			}
			if !r.runs() {
				if status, said, known := k.status(r); known {
					k.ended(n, r, status, said)
				}
				return
			}
			if <-wakeUp(); err != nil { // the engine has been started anew, or is about to be
				if again, err := k.engine(); err == nil {
					engine = again
				}
			}
		}
	}()
	return nil
}

// copyLogs writes what a container has printed and prints, from the beginning, until it ends.
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

// unknownStatus is the exit status of a container of which nobody knows any: it has failed.
const unknownStatus = -1

// status is how a container has ended. Where its engine does not say so, it is asked until it does,
// or until nobody wants to know.
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
		case knows.Over(): // who would have told the engine has been killed, too
			return unknownStatus, "", true
		}
	}
	return 0, "", false
}

// lastWords is the end of what a container has printed.
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
