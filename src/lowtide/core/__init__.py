"""Errors, units, files, settings and other basics that every other room uses."""
