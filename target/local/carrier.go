package local

import (
	"context"
	"fmt"
	"time"
)

// carrierTime is how long devices may take to run; a link whose far end is not there never does.
const carrierTime = 20 * time.Second

// awaitCarriers waits until the devices of new and changed links run: the kernel takes
// note of a carrier some time after the other end has come up, and until then sends nothing.
func (l *Lab) awaitCarriers(ctx context.Context, s steps, done func()) error {
	devices := map[string][]string{} // by node; switches' by ""
	for _, list := range [][]keyed{s.addLinks, s.setLinks} {
		for _, k := range list {
			if wire := l.WireOf(k.Link); k.Down || wire == Patch || wire == Virtual || wire == External {
				continue
			}
			for _, e := range k.Ends {
				node := e.Node
				if !ownsNamespaces(l.node(node)) {
					node = ""
				}
				devices[node] = append(devices[node], e.Interface)
			}
		}
	}
	nodes := make([]string, 0, len(devices))
	for node := range devices {
		nodes = append(nodes, node)
	}
	ctx, cancel := context.WithTimeout(ctx, carrierTime)
	defer cancel()
	err := each(nodes, func(node string) error {
		if err := l.awaitRunning(ctx, node, devices[node]); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
		return nil
	})
	for range s.addLinks {
		done()
	}
	return err
}

func (l *Lab) awaitRunning(ctx context.Context, node string, names []string) error {
	return l.inNet(node, func() error {
		b, err := newBatch()
		if err != nil {
			return err
		}
		defer b.close()
		indexes := map[string]int{}
		for _, name := range names {
			if indexes[name] = l.index[name]; node != "" || indexes[name] == 0 {
				if indexes[name], err = indexOf(name); err != nil {
					return err
				}
			}
		}
		for {
			b.running = map[int32]bool{}
			for name, index := range indexes {
				b.getLink(name, index)
			}
			if err := b.flush(); err != nil {
				return err
			}
			for name, index := range indexes {
				if b.running[int32(index)] {
					delete(indexes, name)
				}
			}
			if len(indexes) == 0 {
				return nil
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				for name := range indexes {
					return fmt.Errorf("%s has no carrier after %s", name, carrierTime)
				}
			}
		}
	})
}
