"""The files of embedded models: which there are, where they come from, and how they are downloaded."""
