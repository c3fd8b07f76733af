package trivet

import (
	"net/netip"
	"reflect"

	"trivet.dev/trivet/topology"
)

// advertisementOptions describe topology.Advertisement.
type advertisementOptions struct {
	Off        bool                     `yaml:"off" doc:"Nothing is advertised here."`
	Interval   topology.Duration        `yaml:"interval" doc:"The longest time between two advertisements, 4s to 30m; 10m when missing. Who asks is answered at once."`
	Lifetime   *topology.Duration       `yaml:"lifetime" doc:"For how long hosts take it for a default router, up to 9000s; none: it is no default router; three times interval when missing."`
	Preference topology.RoutePreference `yaml:"preference" doc:"Which of several default routers hosts take: low, medium, high; medium when missing."`
	Managed    bool                     `yaml:"managed" doc:"Hosts ask a DHCP server for addresses (the flag M)."`
	Other      bool                     `yaml:"other" doc:"Hosts ask a DHCP server for what else there is (the flag O)."`
	Prefixes   []netip.Prefix           `yaml:"prefixes,prefix" doc:"Networks of which hosts make addresses; those of the interface's addresses when missing."`
	Valid      topology.Duration        `yaml:"valid" doc:"For how long hosts have addresses of the networks; 720h when missing."`
	Preferred  topology.Duration        `yaml:"preferred" doc:"For how long hosts prefer these addresses to others; 168h when missing."`
	MTU        int                      `yaml:"mtu" as:"count" doc:"MTU of the link that hosts are told; none when missing."`
	DNS        []netip.Addr             `yaml:"dns" doc:"Servers of names that hosts are told."`
	Search     []string                 `yaml:"search" doc:"Domains in which hosts look for names."`
}

// advertisementShort is one of which only is said that there is one.
var advertisementShort = Short{Pattern: `^(true|yes|on|false|no|off)$`, Example: "true, or off", Truth: true,
	Parse: func(into any, text string) bool {
		on, err := parseBool(text)
		into.(*topology.Advertisement).Off = !on
		return err == nil
	}, Write: func(v any) string {
		a := v.(topology.Advertisement)
		off := a.Off
		if a.Off = false; !reflect.ValueOf(a).IsZero() {
			return ""
		}
		return map[bool]string{true: "off", false: "true"}[off]
	}}
