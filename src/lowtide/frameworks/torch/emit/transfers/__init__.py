"""Copies to the host and back, carried out: the ops, what they do on a device, how the steps of a plan become them."""
