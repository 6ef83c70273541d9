"""Plans back into functions: equations run again, and wait for what the plan runs before them."""
