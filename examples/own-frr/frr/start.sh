#!/bin/sh
# Starts FRR's daemons in a node, and gives them the configuration NODE.conf beside this file. They end with the node.
set -e
install -d -o frr -g frr /run/frr
for daemon in zebra staticd ospfd bgpd; do
    "/usr/lib/frr/$daemon" -d -A 127.0.0.1
done
vtysh -f "/etc/frr/$(hostname).conf"
