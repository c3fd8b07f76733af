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
	if err != nil || r.followed.Swap(true) {
		return err
	}
	engine, err := k.engine()
	if err != nil {
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
				status, said := k.status(engine, r)
				k.ended(n, r, status, said)
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
	logs, err := engine.ContainerLogs(context.Background(), r.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		return err
	}
	defer logs.Close()
	f, err := os.OpenFile(filepath.Join(k.dir(n.Name), OutputLog), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, logs)
	return err
}

// status is how a container has ended, if its engine says; else it has failed.
func (k *containers) status(engine *client.Client, r *running) (status int, said string) {
	is, err := engine.ContainerInspect(context.Background(), r.id, client.ContainerInspectOptions{})
	if err != nil || is.Container.State == nil {
		return -1, ""
	}
	status = is.Container.State.ExitCode
	return status, fmt.Sprintf(" (exit status %d)", status)
}

// lastWords is the end of what a container has printed.
func lastWords(ctx context.Context, engine *client.Client, id string) string {
	logs, err := engine.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "5"})
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, _ := io.ReadAll(io.LimitReader(logs, 4096))
	return cmp.Or(strings.TrimSpace(string(text)), "it printed nothing")
}
