"""What stands between a model and the machine: which files may be touched, which addresses may be reached."""
