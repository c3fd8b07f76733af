package sites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/kernel"
	"trivet.dev/trivet/internal/version"
	"trivet.dev/trivet/lab"
	"trivet.dev/trivet/measure/environment"
	"trivet.dev/trivet/site"
	"trivet.dev/trivet/target/local"
)

// socketProtocol carries a connection to a part's daemon, after an HTTP upgrade.
const socketProtocol = "trivet-socket/1"

// Serve answers the head at another site, through standard input and output, until the head ends
// the connection. It has root's rights, as the head's user has there anyway. It makes and removes
// parts of labs, whose daemons outlive it. The one argument is SSH_CONNECTION of ssh(1).
func Serve(arguments []string) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/facts", func(w http.ResponseWriter, r *http.Request) { answer(w, facts()) })
	mux.HandleFunc("GET /v1/examine", func(w http.ResponseWriter, r *http.Request) { answer(w, local.Examine()) })
	mux.HandleFunc("GET /v1/environment", func(w http.ResponseWriter, r *http.Request) {
		answer(w, environment.Take(r.Context(), environment.Options{Tools: r.URL.Query()["tool"]}))
	})
	management := managementOf(arguments)
	mux.HandleFunc("POST /v1/labs", func(w http.ResponseWriter, r *http.Request) { serveUp(w, r, management) })
	mux.HandleFunc("GET /v1/labs/{name}", func(w http.ResponseWriter, r *http.Request) {
		if s, ok := partNamed(w, r); ok {
			answer(w, s)
		}
	})
	mux.HandleFunc("POST /v1/labs/{name}/resume", func(w http.ResponseWriter, r *http.Request) {
		s, ok := partNamed(w, r)
		if !ok {
			return
		}
		stream(w, func(each func(lab.Progress)) error {
			_, err := lab.Resume(r.Context(), s.Name, each)
			return err
		})
	})
	mux.HandleFunc("POST /v1/labs/{name}/down", func(w http.ResponseWriter, r *http.Request) {
		if s, ok := partNamed(w, r); ok {
			stream(w, func(each func(lab.Progress)) error { return s.Stop(context.WithoutCancel(r.Context()), each) })
		}
	})
	mux.HandleFunc("GET /v1/labs/{name}/socket", func(w http.ResponseWriter, r *http.Request) {
		s, ok := partNamed(w, r)
		if !ok {
			return
		}
		near, err := net.Dial("unix", s.Socket())
		if err != nil {
			http.Error(w, fmt.Sprintf("the daemon of lab %s does not answer: %v", s.Name, errors.Unwrap(err)),
				http.StatusBadGateway)
			return
		}
		site.Lead(w, r, socketProtocol, near)
	})
	serveGauges(mux)
	serveHealth(mux)
	serveSelftest(mux)
	return site.Serve(mux)
}

// managementOf returns the address of the SSH server of this connection; invalid if unknown.
func managementOf(arguments []string) netip.AddrPort {
	f := strings.Fields(strings.Join(arguments, " ")) // client's address and port, server's address and port
	if len(f) != 4 {
		return netip.AddrPort{}
	}
	address, _ := netip.ParseAddr(f[2])
	port, err := strconv.ParseUint(f[3], 10, 16)
	if !address.IsValid() || err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address.WithZone(""), uint16(port))
}

// partNamed returns the part that a request names. It refuses labs that are no parts, and parts of
// other heads' labs.
func partNamed(w http.ResponseWriter, r *http.Request) (s lab.State, ok bool) {
	name := r.PathValue("name")
	s, err := lab.Load(name)
	switch {
	case errors.Is(err, lab.ErrNone):
		http.Error(w, "there is no lab "+name, http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case s.Part == nil || s.Part.Of != r.URL.Query().Get("of"):
		http.Error(w, fmt.Sprintf("lab %s there is none of this lab's", name), http.StatusNotFound)
	default:
		return s, true
	}
	return s, false
}

// serveUp makes a part. If the head goes away meanwhile, it is undone.
func serveUp(w http.ResponseWriter, r *http.Request, management netip.AddrPort) {
	var s lab.State
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.Part == nil || s.Topology == nil || !lab.NamePattern.MatchString(s.Name) || s.Version != version.Version {
		http.Error(w, "that is not a part of a lab", http.StatusBadRequest)
		return
	}
	s.Part.Management = management
	s.Target, s.Owner, s.Status, s.Created = lab.OnThisMachine, os.Getuid(), lab.Starting, time.Now()
	stream(w, func(each func(lab.Progress)) error {
		if err := lab.Check(s.Topology, s.Owner); err != nil {
			return err
		}
		_, err := lab.Start(r.Context(), s, each)
		return err
	})
}

// atWork is the interval at which the head is told that a request is still under way: it gives up
// on a machine that is silent. See site.Answer.
const atWork = 10 * time.Second

// stream sends what f reports as JSON lines, the last with its error.
func stream(w http.ResponseWriter, f func(each func(lab.Progress)) error) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	encoder, flush, mu := json.NewEncoder(w), http.NewResponseController(w), sync.Mutex{}
	send := func(p lab.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if encoder.Encode(p) == nil {
			_ = flush.Flush()
		}
	}
	ended, telling := make(chan struct{}), sync.WaitGroup{}
	telling.Go(func() {
		for every := time.Tick(atWork); ; {
			select {
			case now := <-every:
				send(lab.Progress{Time: now})
			case <-ended:
				return
			}
		}
	})
	err := f(func(p lab.Progress) {
		if !p.End {
			send(p)
		}
	})
	close(ended)
	telling.Wait()
	end := lab.Progress{Time: time.Now(), End: true}
	if err != nil {
		end.Error = err.Error()
	}
	send(end)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// facts returns the facts of this machine.
func facts() site.Facts {
	f := site.Facts{Version: version.Version, Kernel: kernel.Release(), Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		Clock: time.Now().UnixNano()}
	var memory unix.Sysinfo_t
	if unix.Sysinfo(&memory) == nil {
		f.Memory = int64(memory.Totalram) * int64(memory.Unit)
		f.Load = float64(memory.Loads[0]) / 65536
	}
	var disk unix.Statfs_t
	if unix.Statfs("/run", &disk) == nil {
		f.Disk = int64(disk.Bavail) * int64(disk.Bsize)
	}
	return f
}
