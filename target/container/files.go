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

// give puts files into a running container. They, and directories that have to be made for them,
// belong to root. The engine follows links as the container's programs would, and does not write to
// read-only places.
func give(ctx context.Context, engine *client.Client, id string, files []topology.NodeFile) error {
	for _, f := range files {
		if err := giveFile(ctx, engine, id, f); err != nil {
			return fmt.Errorf("files: %s: %w", f.Path, err)
		}
	}
	return nil
}

// place is where a file is to be put: the innermost existing directory of its path, the names of
// the missing ones, and the size and time of the file that has the path now, if any.
type place struct {
	dir     string
	missing []string
	size    int64
	changed time.Time
}

// same says whether nobody has written to the file since.
func (p place) same(now place) bool { return p.size == now.size && p.changed.Equal(now.changed) }

// placeOf finds the place for a file, or says why no file can be put there.
func placeOf(ctx context.Context, engine *client.Client, id, name string) (p place, err error) {
	is, err := engine.ContainerStatPath(ctx, id, client.ContainerStatPathOptions{Path: name})
	switch {
	case err == nil && is.Stat.Mode.Type()&^os.ModeSymlink != 0:
		return p, topology.Mistaken("remove it there", "%s is no regular file in the container", name)
	case err == nil:
		p.size, p.changed = is.Stat.Size, is.Stat.Mtime
	case !errdefs.IsNotFound(err):
		return p, err
	}
	for p.dir = path.Dir(name); p.dir != "/"; p.dir = path.Dir(p.dir) {
		is, err := engine.ContainerStatPath(ctx, id, client.ContainerStatPathOptions{Path: p.dir})
		if err == nil && is.Stat.Mode&(os.ModeDir|os.ModeSymlink) == 0 {
			return p, topology.Mistaken("remove it there", "%s is no directory in the container", p.dir)
		}
		if err == nil {
			break
		}
		if !errdefs.IsNotFound(err) {
			return p, err
		}
		p.missing = slices.Insert(p.missing, 0, path.Base(p.dir))
	}
	return p, nil
}

func giveFile(ctx context.Context, engine *client.Client, id string, f topology.NodeFile) error {
	p, err := placeOf(ctx, engine, id, f.Path)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	name, now := "", time.Now()
	for _, m := range p.missing {
		name += m + "/"
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: now,
			Format: tar.FormatPAX}); err != nil {
			return err
		}
	}
	header := tar.Header{Typeflag: tar.TypeReg, Name: name + path.Base(f.Path), Mode: int64(f.Mode),
		Size: int64(len(f.Text)), ModTime: now, Format: tar.FormatPAX}
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	_, err = io.WriteString(w, f.Text)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	_, err = engine.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: p.dir, Content: &archive})
	return err
}

// given are the files that a container was last given, by path.
type given map[string]topology.NodeFile

// note records that a node's container has the node's files, unless a record exists.
func (k *containers) note(n *topology.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.given[n.Name] == nil {
		k.given[n.Name] = given{}
		for _, f := range n.Files {
			k.given[n.Name][f.Path] = f
		}
	}
}

// giveAgain puts those files into a node's container that differ from what it was last given; after
// an error the container has the earlier ones. So a change that has failed can be undone, whether
// it failed here or before, and whatever the container's programs have done. Both nodes have files
// at the same paths; otherwise the container is made anew.
func (k *containers) giveAgain(n, old *topology.Node) error {
	k.note(old)
	k.mu.Lock()
	was := k.given[n.Name]
	k.mu.Unlock()
	changed := slices.DeleteFunc(slices.Clone(n.Files), func(f topology.NodeFile) bool {
		last, ok := was[f.Path]
		return ok && last.Text == f.Text && last.Mode == f.Mode
	})
	if len(changed) == 0 {
		return nil
	}
	r, engine, err := k.at(n)
	if err != nil {
		return err
	}
	ctx, cancel := patience.Container.Context(context.Background())
	defer cancel()
	places := make([]place, len(changed))
	for i, f := range changed {
		if places[i], err = placeOf(ctx, engine, r.id, f.Path); err != nil {
			return fmt.Errorf("files: %s: %w", f.Path, err)
		}
	}
	for i, f := range changed {
		if err := giveFile(ctx, engine, r.id, f); err != nil {
			takeBack(engine, r.id, was, changed[:i+1], places[i])
			return fmt.Errorf("files: %s: %w", f.Path, err)
		}
	}
	for _, f := range changed {
		was[f.Path] = f
	}
	return nil
}

// takeBack restores the earlier contents of some files, of which the last may not have been
// written, or not completely: it is left alone if what had its path is unchanged. Files that cannot
// be restored are removed from the record, so that they are given again when the change is undone.
func takeBack(engine *client.Client, id string, was given, files []topology.NodeFile, last place) {
	ctx, cancel := patience.Container.Context(context.Background()) // the caller's may be over
	defer cancel()
	for i, f := range files {
		if i == len(files)-1 {
			if now, err := placeOf(ctx, engine, id, f.Path); err == nil && last.same(now) {
				continue
			}
		}
		old, ok := was[f.Path]
		if !ok || giveFile(ctx, engine, id, old) != nil {
			delete(was, f.Path)
		}
	}
}

// Files reads the current contents of the files that a node was given. Whatever the container has
// there, only regular files of a size that a topology can hold are read.
func (k *containers) Files(ctx context.Context,
	n *topology.Node) (out []topology.NodeFile, remarks []string, err error) {
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

// readFile reads a file of a container, or says why a topology cannot hold it.
func readFile(ctx context.Context, engine *client.Client, id,
	name string) (f topology.NodeFile, why string, err error) {
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
		return f, fmt.Sprintf("has %d bytes now, and a topology holds %d MiB of one", is.Stat.Size,
			topology.MaxConfigFile>>20), nil
	}
	from, err := engine.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: name})
	if errdefs.IsNotFound(err) {
		return f, "is gone", nil
	}
	if err != nil {
		return f, "", err
	}
	defer from.Content.Close()
	// Beside the text, some headers.
	archive := tar.NewReader(io.LimitReader(from.Content, topology.MaxConfigFile+64<<10))
	header, err := archive.Next()
	if err != nil {
		return f, "", err
	}
	if header.Typeflag != tar.TypeReg { // it was a regular file a moment ago
		return f, "is no regular file any more", nil
	}
	text, err := io.ReadAll(io.LimitReader(archive, topology.MaxConfigFile+1))
	if err != nil {
		return f, "", err
	}
	f = topology.NodeFile{Path: name, TextFile: topology.TextFile{Text: string(text)},
		Mode: uint32(header.FileInfo().Mode().Perm())}
	return f, topology.NotText(string(text)), nil
}
