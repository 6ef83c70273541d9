"""Plans and Grappler's rewrites into nodes: copies, control edges, swaps and accumulations."""
