package container

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
	"golang.org/x/sys/unix"
)

// mostDockerfile is how many bytes of a Dockerfile are searched here for images that need logins.
const mostDockerfile = 1 << 20

// forBases returns the logins for the images that a directory's Dockerfile builds on: one for each
// registry, the first, as engines take one for a whole registry. The engine gets no others.
func (as asker) forBases(ctx context.Context, dir string) (with []login, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(dockerfile, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", f.Name())
	}
	text, err := io.ReadAll(io.LimitReader(f, mostDockerfile))
	if err != nil {
		return nil, err
	}
	for _, image := range bases(string(text)) {
		l := as.at(ctx, image)
		i := slices.IndexFunc(with, func(other login) bool { return other.registry == l.registry })
		switch {
		case l.registry == "":
		case i < 0:
			with = append(with, l)
		case with[i].auth == (registry.AuthConfig{}): // a later one may be for a part of the registry
			with[i] = l
		}
	}
	return with, nil
}

// bases returns the images that a Dockerfile names: those of FROM, and of COPY --from and RUN
// --mount=from= where these are not stages of its own
// (https://docs.docker.com/reference/dockerfile), with variables replaced by their values.
func bases(text string) (out []string) {
	stages, args := map[string]bool{"scratch": true}, map[string]string{}
	add := func(image string) {
		if image = os.Expand(image, func(name string) string { return argument(args, name) }); image == "" ||
			stages[strings.ToLower(image)] {
			return
		}
		if !slices.Contains(out, image) {
			out = append(out, image)
		}
	}
	from := func(image string) {
		if strings.Trim(image, "0123456789") != "" { // otherwise it is the number of a stage
			add(image)
		}
	}
	first := true
	for line := range instructions(text) {
		words := strings.Fields(line)
		switch strings.ToUpper(words[0]) {
		case "ARG":
			for _, w := range words[1:] {
				name, value, _ := strings.Cut(w, "=")
				if first { // variables after the first FROM do not apply to FROM
					args[name] = strings.Trim(value, `"'`)
				}
			}
		case "FROM":
			first = false
			words = slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "--") })
			if len(words) > 0 {
				add(words[0])
			}
			if len(words) == 3 && strings.EqualFold(words[1], "AS") {
				stages[strings.ToLower(words[2])] = true
			}
		case "COPY":
			for _, w := range words[1:] {
				if image, ok := strings.CutPrefix(w, "--from="); ok {
					from(image)
				}
			}
		case "RUN":
			for _, w := range words[1:] {
				if !strings.HasPrefix(w, "--") {
					break
				}
				options, _ := strings.CutPrefix(w, "--mount=")
				for _, o := range strings.Split(options, ",") {
					if image, ok := strings.CutPrefix(o, "from="); ok {
						from(image)
					}
				}
			}
		}
	}
	return out
}

// argument returns the value of a variable, written NAME or NAME:-VALUE.
func argument(args map[string]string, name string) string {
	name, other, _ := strings.Cut(name, ":-")
	if args[name] != "" {
		return args[name]
	}
	return other
}

// instructions returns a Dockerfile's instructions, each as one line, without comments.
func instructions(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		whole := ""
		lines := bufio.NewScanner(strings.NewReader(text))
		lines.Buffer(nil, mostDockerfile)
		for lines.Scan() {
			line := strings.TrimSpace(lines.Text())
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			part, goesOn := strings.CutSuffix(line, `\`)
			whole += part + " "
			if goesOn {
				continue
			}
			if strings.TrimSpace(whole) != "" && !yield(whole) {
				return
			}
			whole = ""
		}
		if strings.TrimSpace(whole) != "" {
			yield(whole)
		}
	}
}

// authsOf returns the logins in the form for a request to build.
func authsOf(with []login) map[string]registry.AuthConfig {
	out := map[string]registry.AuthConfig{}
	for _, l := range with {
		if l.auth != (registry.AuthConfig{}) {
			out[l.auth.ServerAddress] = l.auth
		}
	}
	return out
}

// quoted matches the parts of an engine's error that quote a step.
var quoted = regexp.MustCompile(`(?s)STEP ".*": |The command '.*' returned`)

// explainBuild adds to a build's error which login was used for the registry that the engine names.
// It considers only the engine's own words, as steps may print anything.
func (as asker) explainBuild(err error, with []login) error {
	if err == nil {
		return nil
	}
	said := err.Error()
	if own := (*jsonstream.Error)(nil); errors.As(err, &own) {
		said = own.Error()
	}
	why := quoted.ReplaceAllString(said, "")
	i := slices.IndexFunc(with, func(l login) bool { return names(said, l.registry) })
	if i < 0 && strings.Contains(why, "pull access denied for ") {
		i = slices.IndexFunc(with, func(l login) bool { return l.registry == dockerHub }) // which Docker does not name
	}
	if i < 0 {
		return err
	}
	return with[i].explainAs(err, why, as.engine)
}

// names says whether a text contains the name of a registry, but not as a part of another machine's
// name.
func names(text, registry string) bool {
	return regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(registry) + `($|[^\w.:-]|[.:-](\W|$))`).MatchString(text)
}
