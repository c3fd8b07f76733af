# What Trivet makes of  openstack: {flavor: small, instances: N}, as OpenTofu and Terraform are told to.
terraform {
  required_providers {
    openstack = { source = "terraform-provider-openstack/openstack" }
  }
}

provider "openstack" {}

variable "instances" { type = number }

data "openstack_networking_network_v2" "outside" {
  external = true
}

resource "openstack_networking_network_v2" "inside" {
  name = "tofu"
}

resource "openstack_networking_subnet_v2" "inside" {
  name       = "tofu"
  network_id = openstack_networking_network_v2.inside.id
  cidr       = "10.253.0.0/16"
}

resource "openstack_networking_router_v2" "router" {
  name                = "tofu"
  external_network_id = data.openstack_networking_network_v2.outside.id
}

resource "openstack_networking_router_interface_v2" "router" {
  router_id = openstack_networking_router_v2.router.id
  subnet_id = openstack_networking_subnet_v2.inside.id
}

resource "openstack_networking_secgroup_v2" "group" {
  name = "tofu"
}

resource "openstack_networking_secgroup_rule_v2" "ssh" {
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "tcp"
  port_range_min    = 22
  port_range_max    = 22
  security_group_id = openstack_networking_secgroup_v2.group.id
}

resource "openstack_networking_secgroup_rule_v2" "icmp" {
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "icmp"
  security_group_id = openstack_networking_secgroup_v2.group.id
}

resource "openstack_networking_secgroup_rule_v2" "among" {
  direction         = "ingress"
  ethertype         = "IPv4"
  remote_group_id   = openstack_networking_secgroup_v2.group.id
  security_group_id = openstack_networking_secgroup_v2.group.id
}

resource "openstack_networking_port_v2" "port" {
  count              = var.instances
  name               = "tofu-${count.index}"
  network_id         = openstack_networking_network_v2.inside.id
  security_group_ids = [openstack_networking_secgroup_v2.group.id]
  depends_on         = [openstack_networking_subnet_v2.inside]
}

resource "openstack_compute_instance_v2" "instance" {
  count        = var.instances
  name         = "tofu-${count.index}"
  image_name   = "body"
  flavor_name  = "small"
  config_drive = true
  user_data    = "#cloud-config\nhostname: tofu-${count.index}\n"
  network {
    port = openstack_networking_port_v2.port[count.index].id
  }
}

resource "openstack_networking_floatingip_v2" "address" {
  count      = var.instances
  pool       = data.openstack_networking_network_v2.outside.name
  port_id    = openstack_networking_port_v2.port[count.index].id
  depends_on = [openstack_networking_router_interface_v2.router]
}
