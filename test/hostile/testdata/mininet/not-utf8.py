# ÿþ
from mininet.net import Mininet
