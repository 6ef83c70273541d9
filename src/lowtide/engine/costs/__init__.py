"""Costs of ops: profiles that estimate or read the run time of every op in seconds.

Prices are separate from the graph, whose costs are part of its fingerprint: a plan must fit the graph for any profile.
"""

from lowtide.engine.costs.devices import Device, device_key, device_named, devices, is_device, unknown_device
from lowtide.engine.costs.estimates import sent_bytes
from lowtide.engine.costs.file_format import costs_schema, read_costs_file, write_costs_file
from lowtide.engine.costs.machine import PLAIN_MACHINE, Machine
from lowtide.engine.costs.prices import Prices, carries_costs, given_prices
from lowtide.engine.costs.profiles import MACHINES, PROFILES, ProfileName, check_profile, price, read_costs

__all__ = [
    "MACHINES",
    "PLAIN_MACHINE",
    "PROFILES",
    "Device",
    "Machine",
    "Prices",
    "ProfileName",
    "carries_costs",
    "check_profile",
    "costs_schema",
    "device_key",
    "device_named",
    "devices",
    "given_prices",
    "is_device",
    "price",
    "read_costs",
    "read_costs_file",
    "sent_bytes",
    "unknown_device",
    "write_costs_file",
]
