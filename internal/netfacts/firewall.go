package netfacts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

var nftFamilies = map[nftables.TableFamily]string{nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip",
	nftables.TableFamilyIPv6: "ip6",
	nftables.TableFamilyARP:  "arp", nftables.TableFamilyNetdev: "netdev", nftables.TableFamilyBridge: "bridge"}

var nftHooks = map[nftables.ChainHook]string{0: "prerouting", 1: "input", 2: "forward", 3: "output", 4: "postrouting",
	5: "ingress"}

// nftables reads the rules of nf_tables, if there is any table.
func (r *reader) nftables() error {
	if any, err := anyTable(); err != nil || !any {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTables()
	if err != nil {
		return err
	}
	for _, t := range tables {
		of := nftFamilies[t.Family] + " " + t.Name
		r.facts.put(NFT, "", of, "table")
		chains, err := c.ListChainsOfTableFamily(t.Family)
		if err != nil {
			return err
		}
		for _, chain := range chains {
			if chain.Table.Name != t.Name {
				continue
			}
			name := of + " " + chain.Name
			r.facts.put(NFT, "", name, chainWords(chain))
			rules, err := c.GetRules(t, chain)
			if err != nil {
				return err
			}
			for _, rule := range rules {
				r.facts.put(NFT, "", fmt.Sprintf("%s handle %d", name, rule.Handle), ruleWords(rule))
			}
		}
	}
	return nil
}

// anyTable reports whether there is any table: most namespaces have none, which takes one request
// to find out.
func anyTable() (any bool, err error) {
	k, err := dial(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer k.close()
	err = k.each(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, make([]byte, 4), func([]byte) { any = true })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) { // the kernel has no nf_tables
		return false, nil
	}
	return any, err
}

func chainWords(c *nftables.Chain) string {
	out := "chain"
	if c.Hooknum != nil {
		out += fmt.Sprintf(" type %s hook %s", c.Type, nftHooks[*c.Hooknum])
		if c.Priority != nil {
			out += fmt.Sprintf(" priority %d", *c.Priority)
		}
	}
	if c.Policy != nil {
		out += map[nftables.ChainPolicy]string{nftables.ChainPolicyDrop: " policy drop",
			nftables.ChainPolicyAccept: " policy accept"}[*c.Policy]
	}
	return out
}

// ruleWords describes what a rule does, with a digest of its conditions, but not its counters.
func ruleWords(rule *nftables.Rule) string {
	var words []string
	var when strings.Builder
	for _, e := range rule.Exprs {
		switch x := e.(type) {
		case *expr.Verdict:
			words = append(words, strings.TrimSpace(map[expr.VerdictKind]string{expr.VerdictDrop: "drop",
				expr.VerdictAccept: "accept", expr.VerdictReturn: "return",
				expr.VerdictContinue: "continue", expr.VerdictJump: "jump", expr.VerdictGoto: "goto",
				expr.VerdictQueue: "queue"}[x.Kind]+" "+x.Chain))
		case *expr.Reject:
			words = append(words, "reject")
		case *expr.Masq:
			words = append(words, "masquerade")
		case *expr.NAT:
			words = append(words, map[expr.NATType]string{expr.NATTypeSourceNAT: "snat",
				expr.NATTypeDestNAT: "dnat"}[x.Type])
		case *expr.Limit:
			words = append(words, "limit")
			fmt.Fprintf(&when, "%+v", *x)
		case *expr.Counter, *expr.Quota:
		case *expr.Target:
			words = append(words, x.Name)
		default:
			fmt.Fprintf(&when, "%T%+v", e, e)
		}
	}
	if when.Len() > 0 {
		words = append(words, digest([]byte(when.String())))
	}
	return strings.Join(words, " ")
}

// Of linux/netfilter_ipv4/ip_tables.h and its like for IPv6.
const (
	xtInfo, xtEntries = 64, 65 // IPT_SO_GET_…
	xtName            = 32
	xtInfoSize        = xtName + 4*(1+5+5+1+1)
)

// xtables reads the rules of the older iptables, of the tables that have ever been accessed.
func (r *reader) xtables() error {
	for _, family := range []struct {
		names, word   string
		domain, level int
		// Where an entry says where its target is, where the next entry is, and the length of its
		// head.
		target, next, size int
	}{
		{"ip_tables_names", "ip", unix.AF_INET, unix.SOL_IP, 88, 90, 112},
		{"ip6_tables_names", "ip6", unix.AF_INET6, unix.SOL_IPV6, 140, 142, 168},
	} {
		names, err := r.file("thread-self/net/" + family.names)
		if err != nil {
			return err
		}
		for _, table := range strings.Fields(names) {
			all, err := xtEntriesOf(family.domain, family.level, table)
			if err != nil {
				return fmt.Errorf("%s: %w", table, err)
			}
			for i, at := 0, 0; at+family.size <= len(all); i++ {
				target, next := int(binary.NativeEndian.Uint16(all[at+family.target:])),
					int(binary.NativeEndian.Uint16(all[at+family.next:]))
				if target < family.size || next < target+34 || at+next > len(all) {
					break
				}
				entry := all[at : at+next]
				clear(entry[family.size-16 : family.size]) // what it has counted
				r.facts.put(Xtables, "", fmt.Sprintf("%s %s %d", family.word, table, i),
					xtWords(entry[target:])+" "+digest(entry))
				at += next
			}
		}
	}
	return nil
}

// xtWords describes a target: struct xt_entry_target, and for the standard one a verdict.
func xtWords(target []byte) string {
	name := text(target[2:31])
	if name != "" || len(target) < 36 {
		return name
	}
	switch v := int32(u32(target, 32)); {
	case v == -1:
		return "DROP"
	case v == -2:
		return "ACCEPT"
	case v >= 0:
		return "jump"
	}
	return "RETURN"
}

func xtEntriesOf(domain, level int, table string) ([]byte, error) {
	s, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	get := func(option int, b []byte) error {
		length := uint32(len(b))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s), uintptr(level), uintptr(option),
			uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&length)), 0)
		if errno != 0 {
			return errno
		}
		return nil
	}
	info := make([]byte, xtInfoSize)
	copy(info[:xtName-1], table)
	if err := get(xtInfo, info); err != nil {
		return nil, err
	}
	size := u32(info, xtInfoSize-4)
	entries := make([]byte, xtName+8+int(size))
	copy(entries[:xtName-1], table)
	binary.NativeEndian.PutUint32(entries[xtName:], size)
	if err := get(xtEntries, entries); err != nil {
		return nil, err
	}
	return entries[xtName+8:], nil
}
