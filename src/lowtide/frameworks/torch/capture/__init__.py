"""From a function, module, exported program or training step to one aten graph."""
