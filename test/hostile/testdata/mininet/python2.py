from mininet.net import Mininet
print "hello"
