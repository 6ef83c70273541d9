"""Errors, units, files, effort levels and other basics that every other room uses."""
