"""One module for each participant: the same tool, defined, called and multiplied in that library's own way."""
