// Command mutants plants defects in the program, one at a time, and says which of them the
// packages' own tests find. It changes no file: each defect is an overlay of the build.
//
//	scripts/mutants -n 300 -seed 1 ./controller/... ./topology/...
//
// Defects are drawn from all places in the packages where one of these fits: a comparison that is
// off by one or negated, + for -, && for ||, a number that is one larger, a condition that always
// or never holds, a statement that is left out. A defect is found when the tests of its package
// fail, twice, or do not end; if they pass, those of the packages that import it are asked. What
// does not compile is drawn again.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	n := flag.Int("n", 300, "how many defects to plant")
	seed := flag.Uint64("seed", 1, "equal seeds plant equal defects in equal files")
	out := flag.String("o", "results/mutants.jsonl",
		"file that gets a line for each; those that it has already are not planted again")
	first := flag.Int("from", 0, "number of the first")
	flag.Parse()
	if err := run(*n, *first, *seed, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// Verdict is what became of a defect.
type Verdict struct {
	Number  int    `json:"number"`
	Package string `json:"package"`
	At      string `json:"at"` // file:line:column
	Kind    string `json:"kind"`
	Was     string `json:"was"`
	Is      string `json:"is"`
	// By what: a test, "build" (the compiler or go vet), "time"; empty: by nothing.
	Found   string  `json:"found,omitempty"`
	In      string  `json:"in,omitempty"` // package of the test
	Seconds float64 `json:"seconds"`
}

func run(n, first int, seed uint64, out string, patterns []string) error {
	packages, err := list(patterns)
	if err != nil {
		return err
	}
	var places []place
	for _, p := range packages {
		found, err := placesOf(p)
		if err != nil {
			return err
		}
		places = append(places, found...)
	}
	if len(places) < n {
		return fmt.Errorf("there are only %d places for a defect", len(places))
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	importers, err := importersOf()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(out, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	done, err := verdictsIn(f)
	if err != nil {
		return err
	}
	t := &tester{passes: map[string]time.Duration{}, importers: importers}
	for i, planted := 0, 0; planted < n && i < len(places); i++ {
		at := places[i].String()
		v, had := done[at]
		if !had {
			if v, err = t.try(places[i]); err != nil {
				return err
			}
			v.Number = i
			if v.Found == "build" {
				continue
			}
			if planted < first {
				planted++
				continue
			}
			line, _ := json.Marshal(v)
			if _, err := f.Write(append(line, '\n')); err != nil {
				return err
			}
			done[at] = v
		}
		planted++
		fmt.Printf("%4d  %-8s %-70s %s\n", planted, cmp.Or(map[bool]string{true: "found"}[v.Found != ""], "SURVIVED"),
			v.At+"  "+v.Kind, v.Found)
	}
	tell(done)
	return nil
}

func verdictsIn(f *os.File) (map[string]Verdict, error) {
	out := map[string]Verdict{}
	for d := json.NewDecoder(f); d.More(); {
		var v Verdict
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		out[v.At+" "+v.Kind] = v
	}
	return out, nil
}

// tell prints how many were found, by package.
func tell(verdicts map[string]Verdict) {
	type count struct{ found, all int }
	by := map[string]*count{}
	for _, v := range verdicts {
		for _, name := range []string{v.Package, "all"} {
			if by[name] == nil {
				by[name] = &count{}
			}
			by[name].all++
			if v.Found != "" {
				by[name].found++
			}
		}
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range by {
			if !yield(name) {
				return
			}
		}
	}) {
		fmt.Printf("%-50s %3d of %3d\n", name, by[name].found, by[name].all)
	}
}

// goPackage is what `go list` says of a package.
type goPackage struct {
	ImportPath, Dir                    string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles          []string
}

func list(patterns []string) ([]goPackage, error) {
	cmd := exec.Command("go",
		append([]string{"list",
			"-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles"}, patterns...)...)
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var out []goPackage
	for d := json.NewDecoder(bytes.NewReader(said)); d.More(); {
		var p goPackage
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// others are packages whose tests are no unit tests, or take too long for each defect.
var others = regexp.MustCompile(`/(test|bench|cmd|internal/cli|experiments)(/|$)`)

// importersOf lists, for each package, those with tests that import it, themselves or in their
// tests.
func importersOf() (map[string][]string, error) {
	all, err := list([]string{"./..."})
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, p := range all {
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 || others.MatchString(p.ImportPath) {
			continue
		}
		seen := map[string]bool{p.ImportPath: true}
		for _, to := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if !seen[to] {
				seen[to] = true
				out[to] = append(out[to], p.ImportPath)
			}
		}
	}
	return out, nil
}

// tester runs tests.
type tester struct {
	passes    map[string]time.Duration // how long a package's tests take without a defect
	importers map[string][]string
}

var errUnusable = errors.New("its tests fail without a defect")

// normal is how long the tests of a package take as it is.
func (t *tester) normal(name string) (time.Duration, error) {
	if d, ok := t.passes[name]; ok {
		if d < 0 {
			return 0, errUnusable
		}
		return d, nil
	}
	begin := time.Now()
	found, said := test(name, "", "", 10*time.Minute)
	if found != "" {
		found, said = test(name, "", "", 10*time.Minute)
	}
	t.passes[name] = time.Since(begin)
	if found != "" {
		fmt.Fprintf(os.Stderr, "mutants: %s is left out: %s\n%s\n", name, found, said)
		t.passes[name] = -1
		return 0, errUnusable
	}
	return t.passes[name], nil
}

// try plants a defect and runs the tests.
func (t *tester) try(p place) (Verdict, error) {
	v := Verdict{Package: p.pkg, At: p.at(), Kind: p.kind, Was: p.was, Is: p.is}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return v, err
	}
	defer os.RemoveAll(dir)
	overlay, err := p.plant(dir)
	if err != nil {
		return v, err
	}
	begin := time.Now()
	if exec.Command("go", "build", "-overlay", overlay, p.pkg).Run() != nil {
		v.Found = "build"
		return v, nil
	}
	names := append([]string{p.pkg}, t.importers[p.pkg]...)
	slices.SortStableFunc(names[1:], func(a, b string) int { return cmp.Compare(t.passes[a], t.passes[b]) })
	for _, name := range names[:min(len(names), 6)] {
		usual, err := t.normal(name)
		if err != nil {
			continue
		}
		limit := 3*usual + 30*time.Second
		if v.Found, _ = test(name, overlay, "", limit); v.Found == "" {
			continue
		}
		// What a busy machine does to a test is not found again by that test alone.
		if again, _ := test(name, overlay, v.Found, limit); again != "" {
			v.In = name
			break
		}
		v.Found = ""
	}
	v.Seconds = time.Since(begin).Seconds()
	return v, nil
}

// asRoot runs a test as root, from the project's directory.
var asRoot, _ = filepath.Abs("scripts/as-root")

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// test runs the tests of a package, or one that it named before. It says which test failed first;
// empty: none.
func test(name, overlay, only string, limit time.Duration) (found, said string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := []string{"test", "-count=1", "-failfast", "-exec", asRoot, "-timeout", limit.String()}
	if strings.HasPrefix(only, "Test") || strings.HasPrefix(only, "Fuzz") {
		args = append(args, "-run", "^"+strings.Split(only, "/")[0]+"$")
	}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, name)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	switch m := failed.FindSubmatch(out); {
	case err == nil:
		return "", ""
	case ctx.Err() != nil || bytes.Contains(out, []byte("panic: test timed out")):
		return "time", ""
	case m != nil:
		found = string(m[1])
	case bytes.Contains(out, []byte("[build failed]")):
		found = "build"
	default:
		found = "panic"
	}
	return found, strings.TrimSpace(string(out[max(0, len(out)-2000):]))
}
