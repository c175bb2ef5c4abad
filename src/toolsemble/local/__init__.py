"""The embedded model: llama.cpp in this process, and the files of its weights."""
