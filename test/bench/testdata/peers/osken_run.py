"""Runs os-ken applications: version 4 has no program that does.

    osken_run.py PORT MODULE [--observe-links]
"""
import sys

from os_ken.lib import hub

hub.patch()

from os_ken.base import app_manager  # noqa: E402  first of its package: the others import it in a circle
from os_ken import cfg, log  # noqa: E402
import os_ken.controller.controller  # noqa: E402,F401  registers the options

port, module, *options = sys.argv[1:]
if options:
    import os_ken.topology.switches  # noqa: F401  registers --observe-links
cfg.CONF(args=["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", port] + options, project="os_ken")
log.init_log()
app_manager.AppManager.run_apps([module])
