"""python3 osken_run.py PORT APP  runs an app of this directory on os-ken, which listens on 127.0.0.1."""

import sys

from os_ken.lib import hub

hub.patch()

from os_ken.base import app_manager  # first: the other way round os-ken's imports are circular
from os_ken import cfg, log
import os_ken.controller.controller  # registers the options below

cfg.CONF(args=["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", sys.argv[1]],
         project="os_ken", prog="osken_run.py", version="1", default_config_files=[])
log.init_log()
app_manager.AppManager.run_apps([sys.argv[2]])
