package e2e

import (
	"fmt"
	"testing"
)

func TestRack(t *testing.T) {
	r := newRack(t, 2)
	rack := fmt.Sprintf("gateway: {ssh: local, inner: eth0}\nkeep: 20s\ndevices:\n  m1: {ssh: root@10.5.0.2, key: %[1]s/own}\n  m2: {ssh: root@10.5.0.3, key: %[1]s/own}\n", r.dir)
	r.file("rack.yaml", rack)
	sh := func(c string) { _, out := r.do(c); t.Logf("$ %s\n%s", c, out) }
	at := func(i int, c string) string { return fmt.Sprintf("ssh -i %s/own -o UserKnownHostsFile=%s/known_hosts root@10.5.0.%d '%s'", r.dir, r.dir, i+1, c) }
	sh(trivet + " up linear,2 --on " + r.dir + "/rack.yaml --name rk --wait 1m")
	sh(trivet + " inspect rk")
	sh(trivet + " ping --all --timeout 10s")
	sh(at(1, "ip -br addr; ip rule; ip -6 rule; ip route show table 29810; cat /etc/hosts; tc filter show dev eth0 egress; ping -c1 -W1 10.5.0.1; ping -c1 -W1 10.0.0.2; ping -c 1 -W1 8.8.8.8"))
	sh(trivet + " exec h1 ip -br link")
	sh(trivet + " down rk")
	sh(at(1, "ip -br addr; ip rule; ip route show table 29810; cat /etc/hosts; tc filter show dev eth0 egress; tc qdisc; ping -c1 -W1 10.5.0.1; ls /run/trivet"))
}
