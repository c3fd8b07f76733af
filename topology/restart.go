package topology

import (
	"strconv"
	"strings"
)

// Restart says when a container that has ended is remade, with Docker's keywords:
// https://docs.docker.com/engine/containers/start-containers-automatically. The zero value is the
// same as NoRestart, unless the defaults say otherwise.
type Restart string

const (
	NoRestart     Restart = "no"
	OnFailure     Restart = "on-failure" // on-failure:3: at most 3 times
	Always        Restart = "always"
	UnlessStopped Restart = "unless-stopped" // nothing stops a lab's container alone: the same
)

const restartHint = "write no, on-failure, on-failure:3, always or unless-stopped"

// ParseRestart reads one.
func ParseRestart(s string) (Restart, error) {
	if r := Restart(s); r.valid() {
		return r, nil
	}
	return "", Mistaken(restartHint, "%q does not say when it is made anew", clip(s))
}

func (r Restart) valid() bool {
	if _, times, limited := strings.Cut(string(r), ":"); limited {
		n, err := strconv.ParseUint(times, 10, 31)
		return err == nil && n > 0 && r == OnFailure+Restart(":"+strconv.FormatUint(n, 10))
	}
	return r == NoRestart || r == OnFailure || r == Always || r == UnlessStopped
}

// Is says whether a container is remade after it has ended with an exit status, if it was remade
// this many times already.
func (r Restart) Is(status, times int) bool {
	how, most, limited := strings.Cut(string(r), ":")
	switch Restart(how) {
	case Always, UnlessStopped:
		return true
	case OnFailure:
		n, _ := strconv.Atoi(most)
		return status != 0 && (!limited || times < n)
	}
	return false
}

func (r Restart) String() string { return string(r) }

func (r *Restart) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRestart(string(text))
	return
}
