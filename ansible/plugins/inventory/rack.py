"""Reads a rack's own file, rack.yaml: ansible-playbook -i rack.yaml …"""

from __future__ import annotations

import re

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

DOCUMENTATION = r"""
name: rack
short_description: A rack's own file
description:
  - The gateway of C(rack.yaml) becomes the host C(head), which is the machine that Ansible runs on; its devices are the group
    C(devices), and each of their labels and kinds a group, with C(_) for what groups cannot have in their names.
    Devices with a kind are in the group C(unmanaged), too, which the playbooks leave alone.
options: {}
"""

EXAMPLES = r"""
gateway: {inner: eth1}
devices:
  pi-1: {ssh: pi@10.42.0.101, labels: [pi, k3s-server]}
"""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
TARGET = re.compile(r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*))(?::(?P<port>\d+))?")
WORD = re.compile(r"[^\s{}%'\"\\$`]+")


class InventoryModule(BaseInventoryPlugin):
    NAME = "trivet.rack.rack"

    def verify_file(self, path):
        return super().verify_file(path) and path.endswith((".yaml", ".yml"))

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        rack = loader.load_from_file(path, cache="none")
        if not isinstance(rack, dict) or not isinstance(rack.get("devices"), dict):
            raise AnsibleParserError(f"{path} is not a rack: it has no devices")
        self._gateway(rack.get("gateway") or {})
        inventory.add_group("devices")
        inventory.add_group("unmanaged")
        for name, device in rack["devices"].items():
            self._device(str(name), device if isinstance(device, dict) else {"ssh": device})

    def _set(self, host, **variables):
        for name, value in variables.items():
            if value in (None, ""):
                continue
            if not WORD.fullmatch(str(value)):  # it could be a template, or more than one word
                raise AnsibleParserError(f"{host}: {name} cannot be {value!r}")
            self.inventory.set_variable(host, name, value)

    def _gateway(self, gateway):
        self.inventory.add_group("gateway")
        self.inventory.add_host("head", group="gateway")
        self._set("head", ansible_connection="local", trivet_inner=gateway.get("inner"), trivet_outer=gateway.get("outer"))
        self._labels("head", gateway)

    def _device(self, name, device):
        target = TARGET.fullmatch(str(device.get("ssh") or name))
        if not NAME.fullmatch(name) or not target:
            raise AnsibleParserError(f"{name}: {device.get('ssh')!r} is not user@host, user@host:port or host")
        self.inventory.add_host(name, group="devices")
        port = target["port"]
        self._set(
            name, ansible_host=target["six"] or target["host"], ansible_user=target["user"], ansible_port=port and int(port),
            ansible_ssh_private_key_file=device.get("key"), trivet_nic=device.get("nic"), trivet_address=device.get("address"),
        )
        self._labels(name, device)
        if device.get("kind"):  # it is only configured, by trivet
            self._labels(name, {"label": device["kind"]})
        if device.get("kind") or "openwrt" in [g.name for g in self.inventory.get_host(name).get_groups()]:
            self._labels(name, {"label": "unmanaged"})

    def _labels(self, host, options):
        labels = options.get("labels", options.get("label")) or []
        for label in [labels] if isinstance(labels, str) else labels:
            if not NAME.fullmatch(str(label)):
                raise AnsibleParserError(f"{host}: {label!r} is not a label")
            self.inventory.add_host(host, group=self.inventory.add_group(re.sub(r"[^A-Za-z0-9_]", "_", label)))
