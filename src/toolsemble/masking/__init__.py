"""Secrets of a call, hidden wherever people, models and logs would see them."""
