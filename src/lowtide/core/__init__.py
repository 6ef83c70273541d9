"""Errors, units, files, settings and other basics that every other room uses.

These modules import nothing from other rooms. Effort levels and technique names belong here because searches, packing
and planning all need them.
"""
