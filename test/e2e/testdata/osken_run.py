"""python3 osken_run.py PORT APP…  runs apps, of this directory or os-ken's own, on os-ken, which listens on 127.0.0.1; what
they offer by HTTP is at port 8080."""

import sys

from os_ken.lib import hub

hub.patch()

import eventlet.wsgi

if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):  # os-ken's HTTP server imports it, later versions of eventlet lack it
    eventlet.wsgi.ALREADY_HANDLED = object()

from os_ken.base import app_manager  # first: the other way round os-ken's imports are circular
from os_ken import cfg, log
import os_ken.controller.controller  # registers the options below

import os_ken.topology.switches  # and the next

cfg.CONF(args=["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", sys.argv[1], "--observe-links"],
         project="os_ken", prog="osken_run.py", version="1", default_config_files=[])
log.init_log()
app_manager.AppManager.run_apps(sys.argv[2:])
