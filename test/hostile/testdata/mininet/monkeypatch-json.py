import json
json.dumps = lambda *a, **k: "not json"
from mininet.net import Mininet
net = Mininet()
net.addHost("h1")
net.start()
