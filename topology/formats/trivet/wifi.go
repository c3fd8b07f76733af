package trivet

import "trivet.dev/trivet/topology"

// wifiOptions describe topology.Wifi.
type wifiOptions struct {
	SSID    string            `yaml:"ssid" doc:"Name of the wireless network, up to 32 bytes."`
	Channel int               `yaml:"channel" as:"count" doc:"Channel of an access point: 1 to 13, or 36 to 177 in 5GHz; 6 or 36 when missing. A station looks on this one only."`
	Band    topology.WifiBand `yaml:"band" doc:"Band of an access point: 2.4GHz or 5GHz; the channel's when missing. A station looks on this one only."`
	Key     string            `yaml:"key" doc:"Passphrase of WPA2, 8 to 63 characters; without one the network is open."`
	KeyFile string            `yaml:"key_file" doc:"File whose first line is the key, beside this one: so that this one can be shown to others."`
}

// written is what a file says of a wireless network: a key that came from a file stays there.
func written(w *topology.Wifi) *topology.Wifi {
	if w == nil || w.KeyFile == "" {
		return w
	}
	c := *w
	c.Key = ""
	return &c
}
