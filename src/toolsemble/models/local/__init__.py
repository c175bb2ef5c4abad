"""A model in this process: llama.cpp with the weights of a file."""
