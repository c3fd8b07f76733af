package drive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
)

// output runs a program in a node and returns what it prints.
func (b *bed) output(ctx context.Context, node string, argv ...string) ([]byte, error) {
	var out, errOut bytes.Buffer
	err := b.nodes.run(ctx, node, argv, nil, &out, &errOut)
	return out.Bytes(), explain(node, argv[0], err, errOut.String())
}

// explain adds to an error what the program itself said of it.
func explain(node, program string, err error, said string) error {
	switch {
	case err == nil:
		return nil
	case notInstalled(err):
		return fmt.Errorf("%s: %s is not installed; scripts/bootstrap --test installs what probes need", node, program)
	case strings.TrimSpace(said) == "":
		return fmt.Errorf("%s in %s: %w", filepath.Base(program), node, err)
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return fmt.Errorf("%s in %s: %w: %s", filepath.Base(program), node, err,
		strings.Join(lines[max(0, len(lines)-3):], "; "))
}

// serve starts a program in a node and returns when it has printed a word. stop ends it and returns
// when it has ended.
func (b *bed) serve(ctx context.Context, node, word string, also io.Writer, argv ...string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	said, ended := &listener{word: []byte(word), heard: make(chan struct{})}, make(chan error, 1)
	go func() { ended <- b.nodes.run(ctx, node, argv, nil, io.MultiWriter(said, also), said) }()
	select {
	case <-said.heard:
		return func() { cancel(); <-ended }, nil
	case err = <-ended:
		cancel()
		if err == nil {
			err = errors.New("it ended at once")
		}
	case <-ctx.Done():
		cancel()
		<-ended
		err = fmt.Errorf("it never said %q: %w", word, ctx.Err())
	}
	return nil, explain(node, argv[0], err, said.text())
}

// listener keeps what is written, and tells when a word is in it.
type listener struct {
	word  []byte
	heard chan struct{}
	once  sync.Once
	mu    sync.Mutex
	all   bytes.Buffer
}

// mostKept is the most that a listener keeps, in bytes; no program says so much before it is ready.
const mostKept = 64 << 10

func (l *listener) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all.Len() < mostKept {
		l.all.Write(p)
	}
	if bytes.Contains(l.all.Bytes(), l.word) {
		l.once.Do(func() { close(l.heard) })
	}
	return len(p), nil
}

func (l *listener) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}
