"""What a hostile input may not reach: files outside a directory, addresses that are not public."""
