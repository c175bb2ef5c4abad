"""How the site is made: `make docs`. Nothing is fetched, neither while it is built nor while it is read."""

import sys
from pathlib import Path

from toolsemble import __version__

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "toolsemble"
author = "The toolsemble authors"
release = __version__

extensions = ["sphinx.ext.autodoc", "myst_parser", "sphinx_copybutton", "folders", "included", "names"]
exclude_patterns = ["extensions"]

myst_heading_anchors = 3  # `limits.md#time` means the same here and on the repository's page

# A class is one entry: what it is, how it is made, what it has. Types stand where parameters do.
autoclass_content = "both"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
maximum_signature_line_length = 110
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
nitpick_ignore = [
    ("py:class", "P"),  # Sphinx writes a ParamSpec without its module
    # Types of Temporal, which is not installed where the pages are built; the parameters describe them.
    *(("py:class", name) for name in ("Client", "Worker")),
    # Types of the MCP server that are imported only when it is used; as above.
    *(("py:class", name) for name in ("Functions", "InputRequest", "McpApplication", "TokenVerifier", "ToolSource")),
]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "toolsemble"
html_copy_source = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "static/scorer.js")
pygments_style = "default"
pygments_dark_style = "github-dark"
