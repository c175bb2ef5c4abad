"""What `compare.py` and `worker.py` are made of; nothing here needs more than the standard library."""
