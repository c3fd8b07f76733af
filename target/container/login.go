package container

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/asuser"
	"trivet.dev/trivet/internal/patience"
	"trivet.dev/trivet/topology"
)

// logins are what a user has logged in with at registries, by `docker login` or `podman login`, in
// files and in programs that keep it (https://docs.docker.com/reference/cli/docker/login,
// containers-auth.json(5)). All of it is read as that user, each time it is needed: none of it is
// kept, or is part of an error.
type logins struct {
	uid  int
	home string
}

// loginsOf are those of a user.
func loginsOf(uid int) logins {
	return logins{uid: uid, home: homeOf(uid)}
}

// homeOf is a user's directory as the machine's list of users has it. HOME is not asked: sudo may
// have kept that of the user who called it, and root runs what a file with logins there names.
func homeOf(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && u.HomeDir != "" {
		return u.HomeDir
	}
	return "/nonexistent"
}

// own says whether the user is who runs this process.
func (l logins) own() bool { return l.uid == os.Getuid() }

// runtime is where programs of the user keep what ends with the session.
func (l logins) runtime() string { return fmt.Sprintf("/run/user/%d", l.uid) }

// ownEnvironment is what a program finds that runs as who runs this process: its variables, but for
// those that lead to files of a user. They can be another one's, kept by sudo.
func ownEnvironment() []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == "HOME" || name == dockerConfig || name == authFile || strings.HasPrefix(name, "XDG_")
	})
	return append(env, "HOME="+homeOf(os.Getuid()))
}

// These variables name a directory, and a file, with logins.
const dockerConfig, authFile = "DOCKER_CONFIG", "REGISTRY_AUTH_FILE"

// pathIn is what a variable names, if it is set.
func pathIn(variable string) (string, error) {
	path := os.Getenv(variable)
	if path != "" && !filepath.IsAbs(path) {
		// The daemon's directory is nobody's.
		return "", fmt.Errorf("%s is %s, and must be a path that begins with /", variable, path)
	}
	return path, nil
}

// files are those with logins, the first of which that has one for a registry counts. An error is
// of a variable that names none, beside those that there are.
func (l logins) files() (out []string, err error) {
	switch file, err := pathIn(authFile); {
	case err != nil:
		return nil, err
	case file != "":
		return []string{file}, nil
	}
	const podmans = "containers/auth.json"
	out = []string{filepath.Join(l.runtime(), podmans), filepath.Join(l.home, ".config", podmans)}
	if l.own() { // where root's is without a session; nobody else can reach it
		out = append(out, fmt.Sprintf("/run/containers/%d/auth.json", l.uid))
	}
	switch dir, err := pathIn(dockerConfig); {
	case err != nil:
		return out, err
	case dir != "":
		return append([]string{filepath.Join(dir, "config.json")}, out...), nil
	}
	return append(out, filepath.Join(l.home, ".docker", "config.json")), nil
}

// login is what a user has logged in with at the registry of an image; the zero one asks that for
// what it gives everybody.
type login struct {
	auth     registry.AuthConfig
	registry string
	looked   []string // the files that are there
	from     string   // the one that has it
	trouble  []string // why something of them could not be had
}

// at looks for what an image is pulled with.
func (l logins) at(ctx context.Context, image string) (found login) {
	name, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return found // the engine says what is wrong
	}
	found.registry = reference.Domain(name)
	files, err := l.files()
	if err != nil {
		found.trouble = append(found.trouble, err.Error())
	}
	for _, file := range files {
		config, err := l.read(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		found.looked = append(found.looked, file)
		if err != nil {
			found.trouble = append(found.trouble, fmt.Sprintf("%s: %s", file, err))
			continue
		}
		auth, err := l.of(ctx, config, name)
		if err != nil {
			found.trouble = append(found.trouble, fmt.Sprintf("%s: %s", file, err))
		}
		if auth != (registry.AuthConfig{}) {
			auth.ServerAddress = server(found.registry)
			found.auth, found.from = auth, file
			return found
		}
	}
	return found
}

// loginFile is what Docker and Podman write.
type loginFile struct {
	Auths   map[string]loginEntry `json:"auths"`
	Store   string                `json:"credsStore"`
	Helpers map[string]string     `json:"credHelpers"`
}

type loginEntry struct {
	Auth          string `json:"auth"` // user:password in base64
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// mostLogins bounds a file with logins, and what a program says of one, in bytes.
const mostLogins = 1 << 20

// read reads a file as the user. Its errors say nothing of what is in it.
func (l logins) read(file string) (config loginFile, err error) {
	err = asuser.As(l.uid, func() error {
		f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would be waited for
		if err != nil {
			return errors.Unwrap(err)
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			return cmp.Or(err, errors.New("is not a regular file"))
		}
		text, err := io.ReadAll(io.LimitReader(f, mostLogins+1))
		if err == nil && len(text) > mostLogins {
			return errors.New("is larger than 1 MiB, which none needs")
		}
		if err == nil && json.Unmarshal(text, &config) != nil {
			return errors.New("is not JSON as docker login writes it")
		}
		return err
	})
	return config, err
}

// of is the login that a file has for an image, or that a program keeps which the file names.
func (l logins) of(ctx context.Context, config loginFile, image reference.Named) (auth registry.AuthConfig, err error) {
	helper := config.Store
	for _, key := range slices.Sorted(maps.Keys(config.Helpers)) {
		if loginKey(key) == reference.Domain(image) {
			helper = config.Helpers[key]
		}
	}
	if helper != "" {
		if auth, err = l.ask(ctx, helper, server(reference.Domain(image))); auth != (registry.AuthConfig{}) {
			return auth, err
		}
	}
	entries := map[string]loginEntry{}
	for _, key := range slices.Sorted(maps.Keys(config.Auths)) {
		is, e := loginKey(key), config.Auths[key]
		// The zero one stands for a program that keeps it.
		if _, has := entries[is]; e != (loginEntry{}) && (!has || key == is) {
			entries[is] = e
		}
	}
	for key := image.Name(); key != "."; key = path.Dir(key) { // Podman's are also of a part of a registry
		e, ok := entries[key]
		if !ok {
			continue
		}
		auth, wrong := e.decode()
		return auth, errors.Join(err, wrong)
	}
	return auth, err
}

// dockerHub is the registry of images that name none. Docker keeps logins there by the address that
// its first version had.
const dockerHub, dockerHubKey = "docker.io", "https://index.docker.io/v1/"

func server(registry string) string {
	if registry == dockerHub {
		return dockerHubKey
	}
	return registry
}

// loginKey is the registry that logins are kept for by a name, or a part of it. Docker has had
// addresses there, and goes by their hosts alone, as Podman does: parts have no "https://".
func loginKey(name string) string {
	rest, secure := strings.CutPrefix(name, "https://")
	rest, plain := strings.CutPrefix(rest, "http://")
	host, below, _ := strings.Cut(strings.TrimRight(rest, "/"), "/")
	if host == "index.docker.io" || host == "registry-1.docker.io" {
		host = dockerHub
	}
	if below == "" || secure || plain {
		return host
	}
	return host + "/" + below
}

var errLoginEntry = errors.New("has a login that is not user:password in base64")

func (e loginEntry) decode() (registry.AuthConfig, error) {
	auth := registry.AuthConfig{Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken,
		RegistryToken: e.RegistryToken}
	if e.Auth == "" {
		return auth, nil
	}
	text, err := base64.StdEncoding.DecodeString(e.Auth)
	if err != nil {
		return registry.AuthConfig{}, errLoginEntry
	}
	name, password, ok := strings.Cut(string(text), ":")
	if !ok || name == "" {
		return registry.AuthConfig{}, errLoginEntry
	}
	auth.Username, auth.Password = name, strings.Trim(password, "\x00")
	return auth, nil
}

// helperPrefix is what the names of programs that keep logins begin with:
// https://github.com/docker/docker-credential-helpers
const helperPrefix = "docker-credential-"

// find looks for a program in the directories of PATH, and in those that another user than this
// process's may have there beyond them.
func (l logins) find(program string) (string, error) {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	if !l.own() {
		dirs = append(dirs, filepath.Join(l.home, ".local", "bin"), filepath.Join(l.home, "bin"))
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, program)
		if !filepath.IsAbs(file) {
			continue
		}
		found := false
		if err := asuser.As(l.uid, func() error {
			info, err := os.Stat(file)
			found = err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
			return nil
		}); err != nil {
			return "", err
		}
		if found {
			return file, nil
		}
	}
	return "", fmt.Errorf("it names the program %s, which is not in PATH", program)
}

// environment is what a program of the user's finds: of another one's than this process's, what is
// the same in all of that one's sessions.
func (l logins) environment() []string {
	env := []string{"PATH=" + os.Getenv("PATH")}
	if l.own() {
		env = ownEnvironment()
	}
	name := strconv.Itoa(l.uid)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	run := l.runtime()
	return append(env, "HOME="+l.home, "USER="+name, "LOGNAME="+name, "LANG=C.UTF-8",
		"XDG_RUNTIME_DIR="+run, "DBUS_SESSION_BUS_ADDRESS=unix:path="+run+"/bus")
}

// ask asks a program that keeps logins for one, as the user: nothing if it has none.
func (l logins) ask(ctx context.Context, helper, server string) (auth registry.AuthConfig, err error) {
	if helper != filepath.Base(helper) {
		return auth, errors.New("it names a program that keeps logins with a path")
	}
	program, err := l.find(helperPrefix + helper)
	if err != nil {
		return auth, err
	}
	ctx, cancel := patience.LoginHelper.Context(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "get")
	said := &helperSaid{}
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout = "/", l.environment(), strings.NewReader(server), said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: asuser.Credential(l.uid)}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) } // and what it has started
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if strings.Contains(said.String(), "credentials not found") {
			return auth, nil
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return auth, fmt.Errorf("the program %s, run as user %d: %w", program, l.uid, err)
	}
	var kept struct{ Username, Secret string }
	if err := json.NewDecoder(strings.NewReader(said.String())).Decode(&kept); err != nil {
		return auth, fmt.Errorf("the program %s does not answer as one that keeps logins does", program)
	}
	if kept.Username == "<token>" {
		return registry.AuthConfig{IdentityToken: kept.Secret}, nil
	}
	return registry.AuthConfig{Username: kept.Username, Password: kept.Secret}, nil
}

// helperSaid is what such a program says, of bounded length.
type helperSaid struct{ strings.Builder }

func (s *helperSaid) Write(p []byte) (int, error) {
	if s.Len()+len(p) > mostLogins {
		return 0, errors.New("it says more than a login")
	}
	return s.Builder.Write(p)
}

// header is what an engine is given with a request to pull.
func (g login) header() (string, error) {
	if g.auth == (registry.AuthConfig{}) {
		return "", nil
	}
	text, err := authconfig.Encode(g.auth)
	if err != nil {
		return "", errors.New("the login cannot be written as the engine wants it")
	}
	return text, nil
}

// refusals are what engines say where a registry wants a login, or another one; they have no other
// words for it in common.
var refusals = []string{"unauthorized", "authentication required", "no basic auth credentials", "access denied",
	"denied:", "not authorized",
	" 401", " 403", "forbidden"}

// explain adds to an error of an engine what login it was given, if that is why.
func (g login) explain(err error, engine string) error {
	if err == nil {
		return nil
	}
	return g.explainAs(err, err.Error(), engine)
}

// explainAs is explain where a part of the error's text says why.
func (g login) explainAs(err error, said, engine string) error {
	said = strings.ToLower(said)
	if g.registry == "" || !slices.ContainsFunc(refusals, func(r string) bool { return strings.Contains(said, r) }) {
		return err
	}
	wants, why := "wants a login", "there is no file with logins of the lab's owner"
	if strings.Contains(said, "does not exist or may require") {
		wants = "has no such image, or wants a login for it"
	}
	switch {
	case g.from != "":
		why = "it refuses the one in " + g.from
	case len(g.looked) > 0:
		why = "none for it is in " + strings.Join(g.looked, ", ")
	}
	if len(g.trouble) > 0 {
		why += " (" + strings.Join(g.trouble, "; ") + ")"
	}
	return fmt.Errorf("%w\n%w", err,
		topology.Mistaken(engine+" login "+g.registry, "registry %s %s: %s", g.registry, wants, why))
}
