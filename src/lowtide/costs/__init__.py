"""What ops cost: profiles that price every op of a graph in seconds."""

from lowtide.costs.file_format import costs_schema, read_costs_file, write_costs_file
from lowtide.costs.machine import PLAIN_MACHINE, Machine
from lowtide.costs.prices import Prices, carries_costs, given_prices
from lowtide.costs.profiles import PROFILES, ProfileName, price, read_costs

__all__ = [
    "PLAIN_MACHINE",
    "PROFILES",
    "Machine",
    "Prices",
    "ProfileName",
    "carries_costs",
    "costs_schema",
    "given_prices",
    "price",
    "read_costs",
    "read_costs_file",
    "write_costs_file",
]
