package container

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// give puts files into a running container: they are root's, as are directories that are not there
// yet. The engine follows links as the container's programs would, and writes nothing to where they
// may not.
func give(ctx context.Context, engine *client.Client, id string, files []topology.NodeFile) error {
	for _, f := range files {
		if err := giveFile(ctx, engine, id, f); err != nil {
			return fmt.Errorf("files: %s: %w", f.Path, err)
		}
	}
	return nil
}

func giveFile(ctx context.Context, engine *client.Client, id string, f topology.NodeFile) error {
	dir, missing := path.Dir(f.Path), []string(nil) // the innermost directory that is there, and what is not
	for ; dir != "/"; dir = path.Dir(dir) {
		is, err := engine.ContainerStatPath(ctx, id, client.ContainerStatPathOptions{Path: dir})
		if err == nil && is.Stat.Mode&(os.ModeDir|os.ModeSymlink) == 0 {
			return fmt.Errorf("%s is no directory in the container", dir)
		}
		if err == nil {
			break
		}
		if !errdefs.IsNotFound(err) {
			return err
		}
		missing = slices.Insert(missing, 0, path.Base(dir))
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	name, now := "", time.Now()
	for _, m := range missing {
		name += m + "/"
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: now, Format: tar.FormatPAX}); err != nil {
			return err
		}
	}
	header := tar.Header{Typeflag: tar.TypeReg, Name: name + path.Base(f.Path), Mode: int64(f.Mode), Size: int64(len(f.Text)), ModTime: now, Format: tar.FormatPAX}
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	_, err := io.WriteString(w, f.Text)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	_, err = engine.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: dir, Content: &archive})
	return err
}

// giveAgain puts those files into a node's container whose text or permissions are others than an
// old one's. There are the same ones: where not, the container is made anew.
func (k *containers) giveAgain(n, old *topology.Node) error {
	var changed []topology.NodeFile
	for _, f := range n.Files {
		if !slices.ContainsFunc(old.Files, func(o topology.NodeFile) bool { return o.Path == f.Path && o.String() == f.String() }) {
			changed = append(changed, f)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	r, err := k.of(n)
	if err != nil {
		return err
	}
	engine, err := k.engine()
	if err != nil {
		return err
	}
	ctx, cancel := patience.Container.Context(context.Background())
	defer cancel()
	return give(ctx, engine, r.id, changed)
}

// Files reads the files that a node was given, as they are now. Whatever its container says, it is
// asked for regular files of a size that a topology can hold only, and no more of them is read.
func (k *containers) Files(ctx context.Context, n *topology.Node) (out []topology.NodeFile, remarks []string, err error) {
	if len(n.Files) == 0 {
		return nil, nil, nil
	}
	r, err := k.of(n)
	if err != nil || !r.runs() {
		return nil, []string{"its container has ended: the files in it are not saved"}, nil
	}
	engine, err := k.engine()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := patience.Container.Context(ctx)
	defer cancel()
	for _, f := range n.Files {
		now, why, err := readFile(ctx, engine, r.id, f.Path)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("files: %s: %w", f.Path, err)
		case why != "":
			remarks = append(remarks, fmt.Sprintf("%s %s: it is not saved", f.Path, why))
		default:
			now.File = f.File
			out = append(out, now)
		}
	}
	return out, remarks, nil
}

// readFile reads a file of a container, or says why it is none that a topology can hold.
func readFile(ctx context.Context, engine *client.Client, id, name string) (f topology.NodeFile, why string, err error) {
	is, err := engine.ContainerStatPath(ctx, id, client.ContainerStatPathOptions{Path: name})
	switch {
	case errdefs.IsNotFound(err):
		return f, "is gone", nil
	case err != nil:
		return f, "", err
	case is.Stat.Mode&os.ModeSymlink != 0:
		return f, "is a link now", nil
	case !is.Stat.Mode.IsRegular():
		return f, "is no regular file any more", nil
	case is.Stat.Size > topology.MaxConfigFile:
		return f, fmt.Sprintf("has %d bytes now, and a topology holds %d MiB of one", is.Stat.Size, topology.MaxConfigFile>>20), nil
	}
	from, err := engine.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: name})
	if errdefs.IsNotFound(err) {
		return f, "is gone", nil
	}
	if err != nil {
		return f, "", err
	}
	defer from.Content.Close()
	archive := tar.NewReader(io.LimitReader(from.Content, topology.MaxConfigFile+64<<10)) // beside the text, some headers
	header, err := archive.Next()
	if err != nil {
		return f, "", err
	}
	if header.Typeflag != tar.TypeReg { // it was one just now
		return f, "is no regular file any more", nil
	}
	text, err := io.ReadAll(io.LimitReader(archive, topology.MaxConfigFile+1))
	if err != nil {
		return f, "", err
	}
	f = topology.NodeFile{Path: name, TextFile: topology.TextFile{Text: string(text)}, Mode: uint32(header.FileInfo().Mode().Perm())}
	return f, topology.NotText(string(text)), nil
}
