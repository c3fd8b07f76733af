package container

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"trivet.dev/trivet/internal/parallel"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/topology"
)

// dockerfile is the file by which an image is built.
const dockerfile = "Dockerfile"

// imageOf returns the name of a node's image. For one that is built and has no name in the
// topology, it derives a name from the directory.
func imageOf(n *topology.Node) string {
	if n.Image != "" {
		return n.Image
	}
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(filepath.Base(n.Build))), "-")
	return fmt.Sprintf("localhost/trivet-%s:%x", name,
		sha256.Sum256([]byte(n.Build)))[:len("localhost/trivet-:")+len(name)+12]
}

// Prepare builds or pulls the images of nodes that the engine does not have.
func (k *containers) Prepare(ctx context.Context, nodes []*topology.Node, progress lab.Stage) error {
	engine, err := k.engine()
	if err != nil {
		return err
	}
	var images []*topology.Node // one node for each image
	for _, n := range nodes {
		if !slices.ContainsFunc(images,
			func(other *topology.Node) bool { return imageOf(other) == imageOf(n) && other.Build == n.Build }) {
			images = append(images, n)
		}
	}
	var done atomic.Int64
	progress("images", 0, len(images))
	as, err := k.asker()
	if err != nil {
		return err
	}
	err = parallel.Each(images, func(n *topology.Node) error {
		if err := as.bring(ctx, engine, n); err != nil {
			return fmt.Errorf("%s %s: image %s: %w", n.Kind, n.Name, imageOf(n), err)
		}
		progress("images", int(done.Add(1)), len(images))
		return nil
	})
	return err
}

// asker builds and pulls images for a user.
type asker struct {
	logins
	engine string // the program by which users log in
}

func (k *containers) asker() (asker, error) {
	s, err := readSource(k.Dir)
	as := asker{loginsOf(k.Owner), "docker"}
	if len(s.Program) > 0 || strings.Contains(s.Socket, "podman") {
		as.engine = "podman"
	}
	return as, err
}

// bring builds an image, or pulls one that the engine does not have.
func (as asker) bring(ctx context.Context, engine *client.Client, n *topology.Node) error {
	if n.Build != "" {
		return as.build(ctx, engine, n)
	}
	_, err := engine.ImageInspect(ctx, n.Image)
	if err == nil || !errdefs.IsNotFound(err) {
		return err
	}
	with := as.at(ctx, n.Image)
	header, err := with.header()
	if err != nil {
		return err
	}
	pulled, err := engine.ImagePull(ctx, n.Image, client.ImagePullOptions{RegistryAuth: header})
	if err == nil {
		err = pulled.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("it is not here, and cannot be pulled: %w", with.explain(err, as.engine))
	}
	return nil
}

// build has the engine build an image from a directory, which is sent as it is, except for ignored
// files.
func (as asker) build(ctx context.Context, engine *client.Client, n *topology.Node) error {
	with, err := as.forBases(ctx, n.Build)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(pack(w, n.Build)) }()
	defer r.Close()
	options := client.ImageBuildOptions{Tags: []string{imageOf(n)}, Remove: true, ForceRemove: true,
		AuthConfigs: authsOf(with)}
	built, err := engine.ImageBuild(ctx, r, options)
	if err != nil {
		return fmt.Errorf("build it: %w", as.explainBuild(err, with))
	}
	defer built.Body.Close()
	return as.explainBuild(told(built.Body), with)
}

// told reads an engine's messages about a build, and returns an error with the last ones if it
// failed.
func told(from io.Reader) error {
	last := ""
	for lines := json.NewDecoder(from); ; {
		var message jsonstream.Message
		if err := lines.Decode(&message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if message.Error != nil {
			return fmt.Errorf("build it: %w\n%s", message.Error, last)
		}
		if text := strings.TrimSpace(message.Stream); text != "" {
			last = text
		}
	}
}
