"""HLO text: a tolerant parser that keeps every byte, and a writer that moves whole instructions."""
