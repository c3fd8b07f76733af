package site

// wireGuard is VXLAN within an encrypted network between the machines. Of its ports, 51820 is
// WireGuard's default.
var wireGuard = &Carrier{Word: "wireguard", Title: "VXLAN in WireGuard", Ports: [2]int{51820, 52843}, MTU: "1,550",
	Keys: true}
