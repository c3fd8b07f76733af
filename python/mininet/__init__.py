"""Mininet's Python API (2.3) on Trivet: from mininet.net import Mininet gives labs of Trivet."""
