"""What a hostile input may not reach: files outside a directory, addresses that are not public."""
"""What stands between a model and the machine: which files may be touched, which addresses may be reached."""
