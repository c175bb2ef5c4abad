"""The embedded model: llama.cpp in this process, and the download of its weights."""
