// Package markdown writes reports as pages of Markdown with pictures, to be read in a repository: a
// page for each directory of results (a paper), and an index of these and of existing pages. The
// same results give the same bytes. The pages describe the machine, but contain no directory, host
// name or user name.
package markdown

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/template"
	"unicode"
	"unicode/utf8"

	"trivet.dev/trivet/bench/report"
	"trivet.dev/trivet/bench/report/draw"
	"trivet.dev/trivet/internal/lists"
)

//go:embed paper.md
var paperMarkup string

//go:embed index.md
var indexMarkup string

// Index is the name of the first page: that which repositories show of a directory.
const Index = "README.md"

// Result is a report, with the name of its pictures and what identifies the file that it is of.
type Result struct {
	*report.Report
	File   string // as it is named on the page: the directory and the file, without what is before
	SHA256 string // "" of several results side by side
	Bytes  int64
	Name   string // unique on its page
}

// page is a directory of results.
type page struct {
	Summary
	Results []Result // those of them that are written now
}

// Create is called with each file's name, below the directory of the pages, with slashes.
type Create = func(name string, write func(io.Writer) error) error

// Write writes the pages of results. note appears with each of these, about how they were measured;
// kept are existing pages: what they have of other results stays, and is listed in the index.
func Write(results []Result, note string, kept []Summary, create Create) error {
	pages := group(results)
	for i := range pages {
		if err := pages[i].summarize(note, kept); err != nil {
			return err
		}
	}
	index := slices.DeleteFunc(slices.Clone(kept), func(s Summary) bool {
		return slices.ContainsFunc(pages, func(p page) bool { return p.Name == s.Name })
	})
	for _, p := range pages {
		index = append(index, p.Summary)
	}
	slices.SortFunc(index, func(a, b Summary) int { return strings.Compare(a.Name, b.Name) })
	if err := create(Index, execute("index", index)); err != nil {
		return err
	}
	for _, p := range pages {
		if err := create(p.Name+".md", execute("paper", p)); err != nil {
			return err
		}
		if err := create(p.Name+"/"+SummaryFile, p.write); err != nil {
			return err
		}
		for _, r := range p.Results {
			for i := range r.Figures {
				f := &r.Figures[i]
				if err := create(p.picture(r, f.ID), func(to io.Writer) error { return draw.SVG(to, f) }); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Plot is a figure with the place of its picture.
type Plot struct {
	report.Figure
	Picture string
}

// Plots are the figures of a result.
func (p page) Plots(r Result) []Plot {
	return lists.Map(r.Figures, func(f report.Figure) Plot { return Plot{f, p.picture(r, f.ID)} })
}

func (p page) picture(r Result, id string) string { return p.Name + "/" + r.Name + "-" + id + ".svg" }

// group makes the pages: a directory each.
func group(results []Result) (out []page) {
	for _, r := range results {
		dir := filepath.Dir(r.Path)
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		name := slug(filepath.Base(dir))
		r.File = path.Join(filepath.Base(dir), filepath.Base(r.Path))
		i := slices.IndexFunc(out, func(p page) bool { return p.Name == name })
		if i < 0 {
			out = append(out, page{Summary: Summary{Name: name, Title: titled(name)}})
			i = len(out) - 1
		}
		p := &out[i]
		if r.Paper != nil && p.Title == titled(name) {
			p.Title = cmp.Or(work(r.Paper.Source), p.Title)
		}
		base := slug(strings.TrimSuffix(filepath.Base(r.Path), filepath.Ext(r.Path)))
		r.Name = base
		for n := 2; slices.ContainsFunc(p.Results, func(o Result) bool { return o.Name == r.Name }); n++ {
			r.Name = fmt.Sprintf("%s-%d", base, n)
		}
		p.Results = append(p.Results, r)
	}
	return out
}

// titled returns the title of a page by its name, as long as none of its results is of a paper.
func titled(name string) string { return upper(strings.ReplaceAll(name, "-", " ")) }

// slug returns a name that needs no escape in a link, and is not the index's.
func slug(name string) string {
	s := strings.Trim(strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.", r) {
			return r
		}
		return '-'
	}, name), "-.")
	if s == "" || strings.EqualFold(s+".md", Index) {
		return "results"
	}
	return s
}

// work returns the part of a source that is common to its figures: up to the first comma outside
// brackets.
func work(source string) string {
	depth := 0
	for i, r := range source {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',', ';':
			if depth == 0 {
				return upper(source[:i])
			}
		}
	}
	return upper(source)
}

// upper is a text that begins with a capital.
func upper(s string) string {
	first, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToUpper(first)) + s[size:]
}

var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.Must(template.New("paper").Funcs(template.FuncMap{
		"text": text, "day": day, "command": command, "level": level, "cells": cells, "trends": trends,
		"numbers": numbers, "missing": missing, "reason": reason, "verdicts": verdicts, "statements": statements,
		"total": total, "list": func(p page) []Summary { return []Summary{p.Summary} }, "all": all, "notes": notes,
		"pages": allNotes, "sources": sources, "machines": machines, "join": strings.Join, "needed": needed,
	}).Parse(paperMarkup)).New("index").Parse(indexMarkup))
})

func execute(name string, of any) func(io.Writer) error {
	return func(to io.Writer) error { return pages().ExecuteTemplate(to, name, of) }
}
