"""What ops cost: profiles that price every op of a graph in seconds."""

from lowtide.engine.costs.collectives import sent_bytes
from lowtide.engine.costs.file_format import costs_schema, read_costs_file, write_costs_file
from lowtide.engine.costs.machine import PLAIN_MACHINE, Machine
from lowtide.engine.costs.machines import MACHINES
from lowtide.engine.costs.prices import Prices, carries_costs, given_prices
from lowtide.engine.costs.profiles import PROFILES, ProfileName, check_profile, price, read_costs

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
