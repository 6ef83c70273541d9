"""Memory at planned addresses: runs are recorded once, packed, and lie in one arena from then on."""
