"""What ops cost: profiles that price every op of a graph in seconds."""

from lowtide.costs.collectives import sent_bytes
from lowtide.costs.file_format import costs_schema, read_costs_file, write_costs_file
from lowtide.costs.machine import PLAIN_MACHINE, Machine
from lowtide.costs.machines import MACHINES
from lowtide.costs.prices import Prices, carries_costs, given_prices
from lowtide.costs.profiles import PROFILES, ProfileName, check_profile, price, read_costs

__all__ = [
    "MACHINES",
    "PLAIN_MACHINE",
    "PROFILES",
    "Machine",
    "Prices",
    "ProfileName",
    "carries_costs",
    "check_profile",
    "costs_schema",
    "given_prices",
    "price",
    "read_costs",
    "read_costs_file",
    "sent_bytes",
    "write_costs_file",
]
