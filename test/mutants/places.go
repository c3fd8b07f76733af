package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// place is where a defect fits: the text from one offset of a file to another, and what stands
// there instead.
type place struct {
	pkg, file    string
	line, column int
	from, to     int
	kind         string
	was, is      string
}

func (p place) at() string     { return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.column) }
func (p place) String() string { return p.at() + " " + p.kind }

// plant writes the file with the defect to a directory, and the overlay that puts it into its
// place.
func (p place) plant(dir string) (overlay string, err error) {
	text, err := os.ReadFile(p.file)
	if err != nil {
		return "", err
	}
	with := append(append(append([]byte{}, text[:p.from]...), p.is...), text[p.to:]...)
	changed := filepath.Join(dir, filepath.Base(p.file))
	if err := os.WriteFile(changed, with, 0o644); err != nil {
		return "", err
	}
	full, err := filepath.Abs(p.file)
	if err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{full: changed}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, replace, 0o644)
}

// boundary, opposite and other are what stands in place of operators.
var (
	boundary = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ,
		token.GEQ: token.GTR}
	opposite = map[token.Token]token.Token{token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ,
		token.GEQ: token.LSS,
		token.GTR: token.LEQ, token.LEQ: token.GTR}
	other = map[token.Token]token.Token{token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO,
		token.LAND: token.LOR,
		token.LOR:  token.LAND, token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL}
)

// placesOf are the places of a package, outside of its tests.
func placesOf(p goPackage) (out []place, err error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		if ast.IsGenerated(file) {
			continue
		}
		relative, err := filepath.Rel(here, path)
		if err != nil {
			return nil, err
		}
		add := func(from, to token.Pos, kind, is string) {
			at := files.Position(from)
			a, b := at.Offset, files.Position(to).Offset
			is = strings.ReplaceAll(is, same, string(text[a:b]))
			out = append(out, place{pkg: p.ImportPath, file: relative, line: at.Line, column: at.Column, from: a, to: b,
				kind: kind, was: string(text[a:b]), is: is})
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && f.Name.Name != "init" {
				ast.Inspect(f.Body, func(n ast.Node) bool { return offer(n, add) })
			}
		}
	}
	return out, nil
}

// same stands for the text that was there.
const same = "\x00"

// offer adds the defects that fit a node of the syntax tree.
func offer(n ast.Node, add func(from, to token.Pos, kind, is string)) (deeper bool) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		end := n.OpPos + token.Pos(len(n.Op.String()))
		for _, kind := range []struct {
			name string
			with map[token.Token]token.Token
		}{{"boundary", boundary}, {"negated", opposite}, {"operator", other}} {
			if is, ok := kind.with[n.Op]; ok && !joinsText(n) {
				add(n.OpPos, end, kind.name, is.String())
			}
		}
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			add(n.Pos(), n.End(), "number", strconv.FormatInt(v+1, 10))
		}
	case *ast.IfStmt:
		if n.Cond != nil {
			add(n.Cond.Pos(), n.Cond.End(), "always", "true || ("+same+")")
			add(n.Cond.Pos(), n.Cond.End(), "never", "false && ("+same+")")
		}
	case *ast.ExprStmt:
		if call, ok := n.X.(*ast.CallExpr); ok && !says(call) {
			add(n.Pos(), n.End(), "left out", "")
		}
	case *ast.IncDecStmt, *ast.DeferStmt:
		if d, ok := n.(*ast.DeferStmt); !ok || !says(d.Call) {
			add(n.Pos(), n.End(), "left out", "")
		}
	case *ast.BranchStmt:
		if n.Tok == token.CONTINUE || n.Tok == token.BREAK {
			add(n.Pos(), n.End(), "left out", "")
		}
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE && len(n.Lhs) == 1 {
			if name, ok := n.Lhs[0].(*ast.Ident); !ok || name.Name != "_" {
				add(n.Pos(), n.End(), "left out", "")
			}
		}
	}
	return true
}

// joinsText says whether an operator joins text, which no other operator can.
func joinsText(n *ast.BinaryExpr) bool {
	text := false
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		text = text || ok && lit.Kind == token.STRING
		return !text
	})
	return n.Op == token.ADD && text
}

// says says whether a call only tells people something.
func says(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := f.X.(*ast.Ident)
	return ok &&
		(from.Name == "slog" || from.Name == "log" || strings.HasPrefix(f.Sel.Name, "Log") || f.Sel.Name == "say")
}
