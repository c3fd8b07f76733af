"""Mininet's examples, which programs take helpers from: those that are here, and the others where Debian's package of Mininet is
installed, too; these find this package in place of Mininet then."""
import glob

__path__ += glob.glob("/usr/lib/python3/dist-packages/mininet/examples")
