package container

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/sys/unix"
)

// ignoreFiles list files of a directory that are not part of the build context; the first file that
// exists counts. https://docs.docker.com/build/concepts/context/#dockerignore-files
var ignoreFiles = []string{dockerfile + ".dockerignore", ".dockerignore"}

// mostIgnoreFile limits the size of such a file, in bytes: its patterns are tried for each file.
const mostIgnoreFile = 64 << 10

// ignored are the patterns of files that are not sent.
type ignored struct {
	*patternmatcher.PatternMatcher
	file string // with the patterns, if any
}

// skips says whether a path below the directory is left out. Files that the engine itself reads are
// not.
func (g ignored) skips(path string) (bool, error) {
	if path == dockerfile || path == g.file {
		return false, nil
	}
	return g.MatchesOrParentMatches(path)
}

// ignoredIn reads the patterns of a directory.
func ignoredIn(dir string) (g ignored, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return g, err
	}
	defer root.Close()
	for _, name := range ignoreFiles {
		patterns, err := readPatterns(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			g.file = name
			g.PatternMatcher, err = patternmatcher.New(patterns)
		}
		if err != nil {
			return g, fmt.Errorf("%s: %w", filepath.Join(dir, name), err)
		}
		return g, nil
	}
	g.PatternMatcher, err = patternmatcher.New(nil)
	return g, err
}

func readPatterns(root *os.Root, name string) ([]string, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // does not block on a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() || info.Size() > mostIgnoreFile {
		return nil, errors.New("is no file of at most 64 KiB")
	}
	return ignorefile.ReadAll(io.LimitReader(f, mostIgnoreFile))
}

// pack writes a directory as an archive: its directories, files and symbolic links, except for what
// is ignored.
func pack(w io.Writer, dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	ignored, err := ignoredIn(dir)
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch skip, err := ignored.skips(name); {
		case err != nil:
			return err
		case skip && e.IsDir() && !ignored.Exclusions(): // else something in it may be wanted
			return fs.SkipDir
		case skip:
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		link := ""
		switch mode := info.Mode(); {
		case mode&fs.ModeSymlink != 0:
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		case !mode.IsRegular() && !mode.IsDir():
			return nil
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		header.Name = name
		if err := out.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(out, f)
		return err
	})
	return errors.Join(err, out.Close())
}
