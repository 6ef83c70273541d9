"""Programs on several ranks: the same graph everywhere, and plans that one rank saves for all."""
