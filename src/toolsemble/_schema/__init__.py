"""Decode and validate the arguments of a call: JSON text to the types that a tool declares."""
