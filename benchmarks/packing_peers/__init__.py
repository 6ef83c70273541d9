"""Packing rules of other systems, written from their published descriptions, and two that run as programs."""
