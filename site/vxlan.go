package site

import "trivet.dev/trivet/internal/netbatch"

// vxlan carries each link in a tunnel over any IP network (RFC 7348).
var vxlan = &Carrier{Word: "vxlan", Title: "VXLAN", Ports: [2]int{netbatch.VXLANPort, netbatch.VXLANPort}, MTU: "1,550"}
