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

// logins are a user's logins at registries, from `docker login` or `podman login`, in files and in
// credential helpers (https://docs.docker.com/reference/cli/docker/login, containers-auth.json(5)).
// They are read with that user's rights each time they are needed, and are never kept or made part
// of an error.
type logins struct {
	uid  int
	home string
}

// loginsOf returns the logins of a user.
func loginsOf(uid int) logins {
	return logins{uid: uid, home: homeOf(uid)}
}

// homeOf returns a user's home directory according to the user database. It does not use HOME: sudo
// may have kept that of the calling user, and root would run helpers that a file there names.
func homeOf(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil && u.HomeDir != "" {
		return u.HomeDir
	}
	return "/nonexistent"
}

// own says whether the user is the one who runs this process.
func (l logins) own() bool { return l.uid == os.Getuid() }

// runtime is the directory of the user's files that end with the session.
func (l logins) runtime() string { return fmt.Sprintf("/run/user/%d", l.uid) }

// ownEnvironment returns this process's variables, except for those that lead to a user's files:
// sudo may have kept another user's.
func ownEnvironment() []string {
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return name == "HOME" || name == dockerConfig || name == authFile || strings.HasPrefix(name, "XDG_")
	})
	return append(env, "HOME="+homeOf(os.Getuid()))
}

// These variables name a directory, and a file, with logins.
const dockerConfig, authFile = "DOCKER_CONFIG", "REGISTRY_AUTH_FILE"

// pathIn returns the path in a variable; "" if it is not set.
func pathIn(variable string) (string, error) {
	path := os.Getenv(variable)
	if path != "" && !filepath.IsAbs(path) {
		// The daemon's own directory means nothing to the user.
		return "", fmt.Errorf("%s is %s, and must be a path that begins with /", variable, path)
	}
	return path, nil
}

// files returns the files with logins; for each registry, the first that has a login for it counts.
// An error says that a variable names no file; out may have others all the same.
func (l logins) files() (out []string, err error) {
	switch file, err := pathIn(authFile); {
	case err != nil:
		return nil, err
	case file != "":
		return []string{file}, nil
	}
	const podmans = "containers/auth.json"
	out = []string{filepath.Join(l.runtime(), podmans), filepath.Join(l.home, ".config", podmans)}
	if l.own() { // root's without a session; nobody else can write there
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

// login is a user's login at the registry of an image; the zero login is anonymous.
type login struct {
	auth     registry.AuthConfig
	registry string
	looked   []string // the files that exist
	from     string   // the file with the login
	trouble  []string // why some of them could not be used
}

// at finds the login with which an image is pulled.
func (l logins) at(ctx context.Context, image string) (found login) {
	name, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return found // the engine reports what is wrong
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

// loginFile is the format of Docker's and Podman's files.
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

// mostLogins limits how many bytes are read of a file with logins, and of a credential helper's
// output.
const mostLogins = 1 << 20

// read reads a file with the user's rights. Its errors quote nothing of the contents.
func (l logins) read(file string) (config loginFile, err error) {
	err = asuser.As(l.uid, func() error {
		f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // does not block on a pipe
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

// of returns the login for an image from a file, or from a credential helper that the file names.
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
		// An empty entry says that a credential helper has the login.
		if _, has := entries[is]; e != (loginEntry{}) && (!has || key == is) {
			entries[is] = e
		}
	}
	for key := image.Name(); key != "."; key = path.Dir(key) { // Podman has parts of registries
		e, ok := entries[key]
		if !ok {
			continue
		}
		auth, wrong := e.decode()
		return auth, errors.Join(err, wrong)
	}
	return auth, err
}

// dockerHub is the registry of images that name none. Docker stores its logins under the URL of the
// registry's first version.
const dockerHub, dockerHubKey = "docker.io", "https://index.docker.io/v1/"

func server(registry string) string {
	if registry == dockerHub {
		return dockerHubKey
	}
	return registry
}

// loginKey returns the registry, or the part of one, to which a key in a file with logins refers.
// Docker used to store URLs, and considers only their host, as Podman does; keys for parts of a
// registry have no "https://".
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

// helperPrefix starts the names of credential helpers:
// https://github.com/docker/docker-credential-helpers
const helperPrefix = "docker-credential-"

// find looks for a program in the directories of PATH and, for another user than this process's, in
// those that this user usually has besides.
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

// environment returns the variables for a program that runs as the user: for another user than this
// process's, only those that are the same in all of that user's sessions.
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

// ask asks a credential helper, run as the user, for a login; the result is empty if it has none.
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
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) } // children, too
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

// helperSaid is a helper's output, of limited length.
type helperSaid struct{ strings.Builder }

func (s *helperSaid) Write(p []byte) (int, error) {
	if s.Len()+len(p) > mostLogins {
		return 0, errors.New("it says more than a login")
	}
	return s.Builder.Write(p)
}

// header returns the login in the form for a request to pull.
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

// refusals are phrases of engines' errors where a registry asks for a login, or another one; the
// errors have nothing else in common.
var refusals = []string{"unauthorized", "authentication required", "no basic auth credentials", "access denied",
	"denied:", "not authorized",
	" 401", " 403", "forbidden"}

// explain adds to an error of an engine which login it was given, if that is the reason.
func (g login) explain(err error, engine string) error {
	if err == nil {
		return nil
	}
	return g.explainAs(err, err.Error(), engine)
}

// explainAs is explain for an error of which only the part said gives the reason.
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
