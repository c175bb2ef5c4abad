"""The toolbox: tools by name, and the calls of a run."""
