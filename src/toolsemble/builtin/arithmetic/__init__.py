"""Arithmetic as people write it: text to tokens, tokens to steps, steps to a number."""
