r"""The exercise on bufferbloat: a long flow fills a queue, and the round trip grows with its size.

needs: iperf
args: --bw-host 100 --bw-net 2 --delay 5 --maxq 60 --time 6 --dir out
expect: long flow: [12]\.\d
expect: the queue adds more than 100 ms
"""
import os
import re
import sys
from argparse import ArgumentParser
from subprocess import PIPE
from time import sleep, time

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.topo import Topo

parser = ArgumentParser(description='Bufferbloat tests')
parser.add_argument('--bw-host', '-B', type=float, help='Bandwidth of host links (Mb/s)', default=1000)
parser.add_argument('--bw-net', '-b', type=float, help='Bandwidth of bottleneck link (Mb/s)', required=True)
parser.add_argument('--delay', type=float, help='Link propagation delay (ms)', required=True)
parser.add_argument('--dir', '-d', help='Directory to store outputs', required=True)
parser.add_argument('--time', '-t', help='Duration (sec) to run the experiment', type=int, default=10)
parser.add_argument('--maxq', type=int, help='Max buffer size of network interface in packets', default=100)
args = parser.parse_args()


class BBTopo(Topo):
    def build(self, n=2):
        s0 = self.addSwitch('s0', dpid='1')
        h1, h2 = self.addHost('h1'), self.addHost('h2')
        self.addLink(h1, s0, bw=args.bw_host)
        self.addLink(h2, s0, bw=args.bw_net, delay='%sms' % args.delay, max_queue_size=args.maxq)


def start_ping(net):
    h1, h2 = net.get('h1', 'h2')
    return h1.popen("ping -i 0.1 %s > %s/ping.txt" % (h2.IP(), args.dir), shell=True)


def bufferbloat():
    os.makedirs(args.dir, exist_ok=True)
    net = Mininet(topo=BBTopo(), link=TCLink)
    net.start()
    net.pingAll()
    ping = start_ping(net)
    sleep(1)
    h1, h2 = net.get('h1', 'h2')
    server = h2.popen('iperf -s -w 16m', stdout=PIPE)
    sleep(2)
    begin = time()
    client = h1.popen('iperf -Z reno -c %s -t %d' % (h2.IP(), args.time), stdout=PIPE)
    while client.poll() is None and time() - begin < args.time + 20:
        sleep(0.2)
    said = client.communicate()[0].decode()
    for process in (ping, server):
        process.terminate()
    net.stop()
    print('long flow:', re.findall(r'([\d.]+) Mbits/sec', said)[-1])
    times = [float(t) for t in re.findall(r'time=([\d.]+)', open('%s/ping.txt' % args.dir).read())]
    if max(times) > min(times) + 100:
        print('the queue adds more than 100 ms')
    else:
        print(sorted(times))
    return 0


if __name__ == '__main__':
    setLogLevel('warning')
    sys.exit(bufferbloat())
