package site

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trivet.dev/trivet/topology"
)

// toySource gives as many machines as are asked for: farm:2/lab.
var toySource = &Source{
	Knows: func(g *Given) bool { return strings.HasPrefix(g.Argument, "farm:") },
	Read: func(g *Given, l *List, p *topology.Problems) {
		for name := range strings.SplitSeq(strings.TrimPrefix(g.Argument, "farm:"), "/") {
			if m := parseTarget(name, topology.Position{}, p); m != nil {
				l.Machines = append(l.Machines, m)
			}
		}
	},
}

func init() { RegisterSource(toySource) }

// TestToySource proves that a source that is registered is asked for what it knows, though that
// looks like a file, that its machines are checked as any, and that what it does not know is read
// as without it.
func TestToySource(t *testing.T) {
	for _, c := range []struct{ on, want string }{{"farm:a/b", "a=a; b=b"}, {"farm,a", "farm=farm; a=a"}} {
		if l, err := Read(c.on); err != nil || shown(l) != c.want {
			t.Errorf("%s: %v, %v", c.on, l, err)
		}
	}
	for _, c := range []struct{ on, want string }{{"farm:a/a", "two machines are called a"}, {"farm:", `"" is not a machine`}, {"a/b", "no such file"}} {
		if l, err := Read(c.on); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", c.on, l, err)
		}
	}
}

// TestCarriersApart proves that no code of the program asks which carrier a list has by its word,
// but for the register: whatever differs between carriers is said by their own files.
func TestCarriersApart(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || path == "../site/carrier.go" {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		seen++
		isCarrier := func(e ast.Expr) bool {
			s, ok := e.(*ast.SelectorExpr)
			return ok && s.Sel.Name == "Carrier"
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.BinaryExpr:
				for _, pair := range [][2]ast.Expr{{x.X, x.Y}, {x.Y, x.X}} {
					word, literal := pair[1].(*ast.BasicLit)
					_, named := pair[1].(*ast.SelectorExpr)
					if isCarrier(pair[0]) && (x.Op == token.EQL || x.Op == token.NEQ) && (named || literal && word.Value != `""`) {
						t.Errorf("%s compares a carrier", set.Position(x.Pos()))
					}
				}
			case *ast.SwitchStmt:
				if isCarrier(x.Tag) {
					t.Errorf("%s tells carriers apart", set.Position(x.Pos()))
				}
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 100 {
		t.Errorf("%d files: %v", seen, err)
	}
}

// TestDevicesApart proves that no code of the program knows a kind of devices that are only
// configured by its word, but for its own: whatever differs between kinds is said by these.
func TestDevicesApart(t *testing.T) {
	own := []string{"../site/openwrt.go", "../target/openwrt/", "../internal/all/", "../topology/formats/clab/"} // the last: a kind of images
	seen := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(path, o) }) {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		seen++
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.SelectorExpr:
				if slices.Contains([]string{"OpenWrt", "AgentOVS", "AgentOFSwitch"}, x.Sel.Name) {
					t.Errorf("%s names %s", set.Position(x.Pos()), x.Sel.Name)
				}
			case *ast.BasicLit:
				if text := strings.ToLower(x.Value); strings.Contains(text, "openwrt") && !strings.Contains(text, "experiments/") && !strings.Contains(text, " doc:") {
					t.Errorf("%s says %s", set.Position(x.Pos()), x.Value)
				}
			}
			return true
		})
		return nil
	})
	if err != nil || seen < 100 {
		t.Errorf("%d files: %v", seen, err)
	}
}
