"""Writing a program down again in the order of a plan, and running it."""
