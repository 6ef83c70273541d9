"""From a graph and its settings to a verified plan, in stages over one record; and the curve of memory and time."""
