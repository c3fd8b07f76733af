package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/registry"
	"golang.org/x/sys/unix"

	"trivet.dev/trivet/internal/patience"
)

// TestLogin proves that a login is found as Docker and Podman find it: by the registry of an image,
// under all names that they have written for one, the closest part of it first, in the first file
// that has it; that what a program keeps comes first, and what it does not have is looked for in
// the file; and that what is wrong with a file is said without what is in it, and no error.
func TestLogin(t *testing.T) {
	const kept = `echo '{"Username": "u", "Secret": "kept-'$(cat)'"}'`
	for _, c := range []struct {
		name, text, image string
		want              registry.AuthConfig
		wrong             string
	}{
		{"a registry", `{"auths": {"r.example": {"auth": "dTpwOnE="}}}`, "r.example/x:1", registry.AuthConfig{Username: "u", Password: "p:q"}, ""},
		{"its port is its own", `{"auths": {"r.example": {"auth": "dTpw"}}}`, "r.example:5000/x", registry.AuthConfig{}, ""},
		{"an address", `{"auths": {"https://r.example/v1/": {"auth": "dTpw"}}}`, "r.example/x", registry.AuthConfig{Username: "u", Password: "p"}, ""},
		{"an address below it", `{"auths": {"https://r.example/me": {"auth": "dTpw"}}}`, "r.example/x", registry.AuthConfig{Username: "u", Password: "p"}, ""},
		{"a part called as a version", `{"auths": {"r.example/v1": {"auth": "dTpw"}, "r.example/v2/me": {"auth": "dTpw"}}}`, "r.example/x", registry.AuthConfig{}, ""},
		{"in it", `{"auths": {"r.example": {"auth": "dTpx"}, "r.example/v2/me/": {"auth": "dTpw"}}}`, "r.example/v2/me/x", registry.AuthConfig{Username: "u", Password: "p"}, ""},
		{"both", `{"auths": {"r.example": {"auth": "dTpw"}, "http://r.example": {"auth": "dTpx"}, "zzz://": {}}}`, "r.example/x", registry.AuthConfig{Username: "u", Password: "p"}, ""},
		{"Docker's own, of Docker", `{"auths": {"https://index.docker.io/v1/": {"auth": "dTpw"}}}`, "busybox", registry.AuthConfig{Username: "u", Password: "p"}, ""},
		{"Docker's own, of Podman", `{"auths": {"docker.io": {"auth": "dTpw"}}}`, "me/x@sha256:" + strings.Repeat("0", 64), registry.AuthConfig{Username: "u", Password: "p"}, ""},
		{"a part", `{"auths": {"r.example": {"auth": "dTpw"}, "r.example/me": {"auth": "dTpx"}}}`, "r.example/me/x", registry.AuthConfig{Username: "u", Password: "q"}, ""},
		{"another part", `{"auths": {"r.example/me": {"auth": "dTpx"}}}`, "r.example/men/x", registry.AuthConfig{}, ""},
		{"a token", `{"auths": {"r.example": {"identitytoken": "t"}}}`, "r.example/x", registry.AuthConfig{IdentityToken: "t"}, ""},
		{"a program", `{"auths": {"r.example": {}}, "credsStore": "kept"}`, "r.example/x", registry.AuthConfig{Username: "u", Password: "kept-r.example"}, ""},
		{"a program, Docker's own", `{"credsStore": "kept"}`, "x", registry.AuthConfig{Username: "u", Password: "kept-https://index.docker.io/v1/"}, ""},
		{"a program for it", `{"credsStore": "kept", "credHelpers": {"r.example": "token"}}`, "r.example/x", registry.AuthConfig{IdentityToken: "t"}, ""},
		{"a program that has it not", `{"auths": {"r.example": {"auth": "dTpw"}}, "credsStore": "none"}`, "r.example/x", registry.AuthConfig{Username: "u", Password: "p"}, ""},
		{"a program that fails", `{"auths": {"r.example": {"auth": "dTpw"}}, "credsStore": "fails"}`, "r.example/x", registry.AuthConfig{Username: "u", Password: "p"}, "exit status 3"},
		{"one that says anything", `{"credsStore": "talks"}`, "r.example/x", registry.AuthConfig{}, "does not answer as one"},
		{"one that says more", `{"credsStore": "endless"}`, "r.example/x", registry.AuthConfig{}, "docker-credential-endless"},
		{"one that hangs", `{"credsStore": "hangs"}`, "r.example/x", registry.AuthConfig{}, "docker-credential-hangs"},
		{"one that is missing", `{"credsStore": "nonesuch"}`, "r.example/x", registry.AuthConfig{}, "docker-credential-nonesuch, which is not in PATH"},
		{"one elsewhere", `{"credsStore": "../kept"}`, "r.example/x", registry.AuthConfig{}, "with a path"},
		{"no JSON", `{"auths": {"r.example": {"auth": secret}}}`, "r.example/x", registry.AuthConfig{}, "is not JSON"},
		{"no base64", `{"auths": {"r.example": {"auth": "secret!"}}}`, "r.example/x", registry.AuthConfig{}, "not user:password"},
		{"no user", `{"auths": {"r.example": {"auth": "c2VjcmV0"}}}`, "r.example/x", registry.AuthConfig{}, "not user:password"},
		{"too much", strings.Repeat(" ", mostLogins) + "{}", "r.example/x", registry.AuthConfig{}, "larger than 1 MiB"},
		{"no image", `{}`, "UPPER", registry.AuthConfig{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, script := range map[string]string{"kept": kept, "token": `echo '{"Username": "<token>", "Secret": "t"}'`, "talks": "echo secret", "hangs": "sleep 60 & sleep 60",
				"none": "echo credentials not found in native keychain; exit 1", "fails": "echo secret; exit 3", "endless": "exec cat /dev/zero"} {
				if err := os.WriteFile(filepath.Join(dir, helperPrefix+name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			t.Setenv("DOCKER_CONFIG", dir)
			t.Setenv("REGISTRY_AUTH_FILE", "")
			if c.name == "one that hangs" {
				t.Cleanup(patience.LoginHelper.Be(100 * time.Millisecond))
			}
			if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			g := logins{uid: os.Getuid(), home: t.TempDir()}.at(t.Context(), c.image)
			if c.want != (registry.AuthConfig{}) {
				c.want.ServerAddress = server(g.registry)
			}
			if trouble := strings.Join(g.trouble, "\n"); g.auth != c.want || (trouble == "") != (c.wrong == "") || !strings.Contains(trouble, c.wrong) || strings.Contains(trouble, "secret") {
				t.Errorf("%+v, want %+v; %s", g, c.want, trouble)
			}
		})
	}
}

// TestLoginFiles proves which files are read, in order: those that variables name first, or alone,
// else the user's where they are by default, whatever this process's variables of the session; and
// that nothing is read from a pipe. A variable that is no whole path is said if a login is missing.
func TestLoginFiles(t *testing.T) {
	for name, value := range map[string]string{"XDG_RUNTIME_DIR": "/session", "XDG_CONFIG_HOME": "/settings", "DOCKER_CONFIG": "", "REGISTRY_AUTH_FILE": ""} {
		t.Setenv(name, value)
	}
	me, other := logins{os.Getuid(), "/home/me"}, logins{12345, "/home/other"}
	check := func(l logins, want ...string) {
		t.Helper()
		if got, err := l.files(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q; %v", l, got, want, err)
		}
	}
	podmans := fmt.Sprintf("/run/containers/%d/auth.json", os.Getuid())
	mine := fmt.Sprintf("/run/user/%d/containers/auth.json", os.Getuid())
	check(me, mine, "/home/me/.config/containers/auth.json", podmans, "/home/me/.docker/config.json")
	check(other, "/run/user/12345/containers/auth.json", "/home/other/.config/containers/auth.json", "/home/other/.docker/config.json")
	t.Setenv("DOCKER_CONFIG", "/mine")
	check(other, "/mine/config.json", "/run/user/12345/containers/auth.json", "/home/other/.config/containers/auth.json")
	t.Setenv("REGISTRY_AUTH_FILE", "/only.json")
	check(me, "/only.json")
	for _, name := range []string{"DOCKER_CONFIG", "REGISTRY_AUTH_FILE"} {
		t.Setenv("REGISTRY_AUTH_FILE", "")
		t.Setenv(name, "etc/passwd") // of the lab's daemon, whose directory is /
		found := logins{os.Getuid(), t.TempDir()}.at(t.Context(), "r.example/x")
		said := found.explain(errors.New("unauthorized"), "docker").Error()
		if want := "(" + name + " is etc/passwd, and must be a path that begins with /)"; !strings.Contains(said, want) {
			t.Errorf("%s, want %s", said, want)
		}
		t.Setenv("DOCKER_CONFIG", "")
	}
	t.Setenv("REGISTRY_AUTH_FILE", "")
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := me.read(pipe); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

// TestOwnEnvironment proves that variables which sudo may have kept of another user lead to no
// login and to no program: not what is looked for as who runs this process, nor a Podman that it
// starts, nor a program that keeps logins. What else they say of the machine is kept.
func TestOwnEnvironment(t *testing.T) {
	planted := t.TempDir()
	helper := filepath.Join(planted, ".local", "bin", helperPrefix+"planted")
	if err := errors.Join(os.Chmod(filepath.Dir(planted), 0o755), os.MkdirAll(filepath.Dir(helper), 0o755), os.WriteFile(helper, []byte("#!/bin/sh\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HTTPS_PROXY", "http://proxy.example:3128")
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE"} {
		t.Setenv(name, planted)
	}
	podman, err := source{Program: []string{"env"}}.command(t.Context()).Output()
	if err != nil {
		t.Fatal(err)
	}
	me := loginsOf(os.Getuid())
	for what, env := range map[string][]string{"Podman": strings.Split(string(podman), "\n"), "a program that keeps logins": me.environment()} {
		if strings.Contains(strings.Join(env, "\n"), planted) || !slices.Contains(env, "HOME="+me.home) || !slices.Contains(env, "HTTPS_PROXY=http://proxy.example:3128") {
			t.Errorf("%s finds %q", what, slices.DeleteFunc(env, func(e string) bool { return !strings.Contains(e, planted) && !strings.HasPrefix(e, "H") }))
		}
	}
	for _, l := range []logins{me, {me.uid, planted}} { // PATH is the whole of who runs this process
		if found, err := l.find(helperPrefix + "planted"); err == nil {
			t.Error("found is ", found)
		}
	}
	t.Setenv("DOCKER_CONFIG", "")
	t.Setenv("REGISTRY_AUTH_FILE", "")
	if files, err := me.files(); err != nil || strings.Contains(strings.Join(files, " "), planted) {
		t.Errorf("read are %q: %v", files, err)
	}
	other := logins{uid: os.Getuid() + 1, home: planted}
	if found, err := other.find(helperPrefix + "planted"); found != helper {
		t.Errorf("another user's own is not found: %q, %v", found, err)
	}
}

// TestExplain proves that an error by which a registry wants a login, or another one, says where
// that was looked for and what to type, whatever the engine's words, and that others say nothing of
// it.
func TestExplain(t *testing.T) {
	none := login{registry: "r.example", looked: []string{"/a", "/b"}, trouble: []string{"/b: permission denied"}}
	wrong := login{registry: "r.example", looked: []string{"/a"}, from: "/a"}
	for _, c := range []struct {
		said string
		with login
		want string
	}{
		{"no basic auth credentials", none, "registry r.example wants a login: none for it is in /a, /b (/b: permission denied); docker login r.example"},
		{"initializing source: unauthorized: authentication required", wrong, "registry r.example wants a login: it refuses the one in /a; docker login r.example"},
		{"pull access denied for x, repository does not exist or may require 'docker login'", login{registry: "docker.io"},
			"registry docker.io has no such image, or wants a login for it: there is no file with logins of the lab's owner; docker login docker.io"},
		{"received unexpected HTTP status: 403 Forbidden", wrong, "refuses the one in /a"},
		{"manifest unknown", wrong, ""}, {"connection refused", none, ""}, {"port 14010", none, ""},
	} {
		err := errors.New(c.said)
		got := c.with.explain(err, "docker")
		if !errors.Is(got, err) || c.want == "" && got.Error() != c.said || !strings.HasSuffix(got.Error(), c.want) && !strings.Contains(got.Error(), c.want+";") {
			t.Errorf("%s: %v, want %s", c.said, got, c.want)
		}
	}
	if err := wrong.explain(nil, "docker"); err != nil {
		t.Error(err)
	}
}

// TestExplainBuild proves that a build's failure is explained by a registry only if the engine
// names that one, whatever a step of the Dockerfile says or prints.
func TestExplainBuild(t *testing.T) {
	with := []login{{registry: "r.example"}, {registry: "r.example:5000"}, {registry: dockerHub}}
	for _, c := range []struct{ said, want string }{
		{`{"errorDetail": {"message": "creating build container: reading manifest 1 in r.example:5000/x: unauthorized: authentication required"}}`, "r.example:5000"},
		{`{"stream": "STEP 1/2: FROM r.example/x"} {"errorDetail": {"message": "building at STEP \"COPY --from=r.example/x /a /b\": reading manifest: denied: access forbidden"}}`, "r.example"},
		{`{"errorDetail": {"message": "pull access denied for me/x, repository does not exist or may require 'docker login'"}}`, dockerHub},
		{`{"errorDetail": {"message": "pull access denied for r.example/x, repository does not exist or may require 'docker login'"}}`, "r.example"},
		{`{"stream": "GET https://r.example/: 403 forbidden"} {"errorDetail": {"message": "building at STEP \"RUN fetch\": while running runtime: exit status 1"}}`, ""},
		{`{"errorDetail": {"message": "building at STEP \"RUN echo \"r.example denied: \" && false\": exit status 1"}}`, ""},
		{`{"errorDetail": {"message": "The command '/bin/sh -c echo r.example: 'denied: '; false' returned a non-zero code: 1"}}`, ""},
		{`{"errorDetail": {"message": "Get \"https://registry-1.docker.io/v2/\": unauthorized"}}`, dockerHub},
		{`{"errorDetail": {"message": "r.example: unauthorized"}}`, "r.example"},
		{`{"errorDetail": {"message": "pull access denied for r.example.org/x, my-r.example/x, r.example:80/x"}}`, dockerHub},
		{`{"errorDetail": {"message": "ADD failed: failed to GET https://other.example/x with status 403 Forbidden: "}}`, ""},
	} {
		err := told(strings.NewReader(c.said))
		got := asker{engine: "docker"}.explainBuild(err, with)
		if c.want == "" && got != err || c.want != "" && !strings.HasSuffix(got.Error(), "; docker login "+c.want) || !errors.Is(got, err) {
			t.Errorf("%s: %v, want %s", c.said, got, c.want)
		}
		if alone := (asker{engine: "docker"}).explainBuild(err, with[:1]); c.want == "" && alone != err {
			t.Errorf("with one registry: %v", alone)
		}
	}
}

// TestBases proves that images are found in a Dockerfile that it builds on, and not its own stages;
// the engine is given logins for no others.
func TestBases(t *testing.T) {
	for text, want := range map[string]string{
		"FROM scratch\nCOPY x /\n": "",
		"# FROM no\nfrom --platform=linux/amd64 r.example/a:1 as Build\nRUN FROM x\nFROM build\nCOPY --from=BUILD /a /b\nCOPY --from=0 /c /d\nCOPY --chown=1 --from=r.example/b /a /b": "r.example/a:1 r.example/b",
		"ARG AT=r.example TAG=\"1\"\nFROM \\\n  # between\n  ${AT}/x:${TAG:-2}\nARG AT=other\nFROM $AT/${NONE:-y}":                                                                     "r.example/x:1 r.example/y",
		"FROM a\nFROM a\nFROM $NONE\nFROM": "a",
		"ARG TAG=1\nFROM a as one\nRUN --network=none --mount=type=bind,from=r.example/b:${TAG},target=/b \\\n --mount=from=ONE,target=/c --mount=type=cache,target=/d x --mount=from=r.example/no": "a r.example/b:1",
	} {
		if got := strings.Join(bases(text), " "); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestBasesLogins proves that an engine is given one login for each registry that a Dockerfile
// names and that has one, of parts of a registry the first that it builds on, and none for what
// leads out of the directory.
func TestBasesLogins(t *testing.T) {
	dir, config := t.TempDir(), t.TempDir()
	t.Setenv("DOCKER_CONFIG", config)
	t.Setenv("REGISTRY_AUTH_FILE", "")
	file := filepath.Join(dir, "Dockerfile")
	if err := errors.Join(os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"auths": {"a.example": {"auth": "dTpw"}, "c.example": {"auth": "dTpw"}, "docker.io": {"auth": "dTpw"}}}`), 0o600),
		os.WriteFile(file, []byte("FROM a.example/x\nFROM a.example/y\nFROM b.example/x\nFROM busybox\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	as := asker{logins{uid: os.Getuid(), home: t.TempDir()}, "docker"}
	with, err := as.forBases(t.Context(), dir)
	given := authsOf(with)
	if err != nil || len(given) != 2 || given["a.example"].Password != "p" || given[dockerHubKey].Password != "p" {
		t.Errorf("%v, %v", given, err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(config, "config.json"), []byte(`{"auths": {"a.example/me": {"auth": "dTpw"}, "a.example/you": {"auth": "dTpx"}}}`), 0o600),
		os.WriteFile(file, []byte("FROM a.example/x\nFROM a.example/me/x\nFROM a.example/you/x\nFROM b.example/x\nFROM busybox\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	with, err = as.forBases(t.Context(), dir)
	if given = authsOf(with); err != nil || len(given) != 1 || given["a.example"].Password != "p" {
		t.Errorf("of parts of a registry: %v, %v", given, err)
	}
	said := as.explainBuild(errors.New("build it: b.example/x: unauthorized"), with)
	if !strings.Contains(said.Error(), "docker login b.example") {
		t.Error(said)
	}
	if err := errors.Join(os.Rename(file, filepath.Join(config, "Dockerfile")), os.Symlink(filepath.Join(config, "Dockerfile"), file)); err != nil {
		t.Fatal(err)
	}
	if _, err := as.forBases(t.Context(), dir); err == nil {
		t.Error("a link that leads out of the directory is followed")
	}
}
