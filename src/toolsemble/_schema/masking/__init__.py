"""Masking: the secrets of a call are hidden in everything that people, models and logs see."""
