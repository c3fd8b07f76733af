from mininet.net import Mininet
net = Mininet()
for n in ("../../etc/passwd", "$(reboot)", "h1; rm -rf /", "a\nb", "a\0b", "主机", "x" * 300, "lo", "-rf", "\x1b[31m"):
    net.addHost(n)
net.start()
