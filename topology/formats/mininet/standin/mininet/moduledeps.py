"""No kernel module or program is needed to read a topology."""

OF_KMOD, OVS_KMOD, TUN = "ofdatapath", "openvswitch", "tun"


def pathCheck(*_args, **_options):
    pass


def moduleDeps(subtract=None, add=None):
    pass


lsmod = rmmod = modprobe = pathCheck
