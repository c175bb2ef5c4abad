"""One run of an agent: its turns and the layers around them: journal, deps and watchers."""
