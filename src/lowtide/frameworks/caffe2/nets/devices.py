"""Where ops run, as names."""

from typing import Any


def device_of(op: Any, net: Any) -> str:
    """Return the name of an op's device, else that of its net, else the CPU."""
    for option in (op.device_option, net.device_option):
        if option.device_type or option.device_id or option.node_name:
            return f"{option.node_name}:{option.device_type}:{option.device_id}".lstrip(":")
    return "cpu"
