"""Run a plan's copies to the host and back: the ops, their implementation on a device, and the emitted nodes."""
