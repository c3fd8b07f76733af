package kathara

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// configures are programs that change nothing but the network configuration of the device that runs
// them.
var configures = []string{
	"ip", "ifconfig", "route", "arp", "tc", "bridge", "brctl", "ethtool", "vconfig", "iptables", "ip6tables", "nft",
	"sysctl", "ping", "ping6", "sleep", "echo", "printf", "set", "exit", "true", ":",
}

var (
	continued = regexp.MustCompile(`\\\n`)
	comment   = regexp.MustCompile(`(?m)(^|[ \t])#.*$`)
	harmless  = regexp.MustCompile(`[0-9&]?>>?[ \t]*(?:/dev/null|/proc/sys/net(?:/\w[\w.-]*)+|&[0-9])([\s;&|]|$)`)
	separator = regexp.MustCompile(`[;&|\n]+`)
	netOption = regexp.MustCompile(`^(-[wqe]+|net\.[\w./-]+(=.*)?)$`)
)

// networkOnly says whether a script only configures the network of its device. A script that is not
// a list of simple commands is assumed to do more.
func networkOnly(script string) bool {
	script = continued.ReplaceAllString(strings.ReplaceAll(script, "\r", ""), " ")
	script = harmless.ReplaceAllString(comment.ReplaceAllString(script, "$1"), "$1")
	if strings.ContainsAny(script, "`<>(){}\\") {
		return false
	}
	for _, command := range separator.Split(script, -1) {
		words := strings.Fields(command)
		if len(words) == 0 {
			continue
		}
		program := path.Base(words[0])
		if !slices.Contains(configures, program) {
			return false
		}
		unquoted := func(i int) string { return strings.Trim(words[i], `"'`) }
		for i := range words[1:] {
			word := unquoted(i + 1)
			switch {
			case program == "ip" && (word == "netns" || strings.HasPrefix(word, "-n") || strings.HasPrefix(word, "-b")),
				program == "sysctl" && !netOption.MatchString(word):
				return false
			}
		}
	}
	return true
}

// quoted returns a text quoted for a shell, as one word.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// run returns the command with which a shell runs a script.
func run(shell, script string) string {
	if strings.Trim(shell, "abcdefghijklmnopqrstuvwxyz0123456789/_-.") != "" {
		shell = quoted(shell)
	}
	return shell + " -c " + quoted(strings.TrimRight(script, "\n"))
}
