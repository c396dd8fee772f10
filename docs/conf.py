"""How Sphinx builds these pages: ``sphinx-build -W --keep-going -n -b html docs OUT``.

It needs the extra ``docs`` and the program ``dot`` of Graphviz, and no network.
"""  # noqa: INP001 - Sphinx wants it here, beside the pages

import enum
import re

from sphinx.application import Sphinx
from sphinx.domains.python import PyObject

import aioelastic

project = "aioelastic"
author = "The aioelastic developers"
project_copyright = author
version = release = aioelastic.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.graphviz"]
exclude_patterns = ["examples"]

# A name in single backticks is one of ours, or of Python's.
default_role = "py:obj"
add_module_names = False
maximum_signature_line_length = 88
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# What only the pytest plugin needs.
autodoc_mock_imports = ["pytest"]
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# They are in the signature, where they are linked.
napoleon_attr_annotations = False

_PYTHON = r"abc|asyncio|collections|contextlib|enum|multiprocessing|os|re|signal|subprocess|types|typing"
nitpick_ignore_regex = [
    # Links to Python's own pages would take its inventory from the network at every build.
    (r"py:.*", rf"({_PYTHON})(\..*)?"),
    # What contexts and agents have in common, and the types of a decorator: nobody outside has to do with them.
    (r"py:class", r"aioelastic\._contexts\.supervised\.Supervised|aioelastic\._agent\.rendezvous\.T"),
    (r"py:class", r"P|aioelastic\._errors\.recording\.(R|RecordDecorator)"),
    # In the pytest plugin's own words, its fixture, which is described in words.
    (r"py:obj", r"start_processes"),
]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

graphviz_output_format = "svg"
# Boxes have light ground and dark words, all else is a grey between black and white: so a diagram can be read on both.
_GREY = "#747b86"
_FONT = "Helvetica,Arial,sans-serif"
graphviz_dot_args = [
    "-Gbgcolor=transparent",
    *(f"-N{each}" for each in ("shape=box", "style=rounded,filled", f"color={_GREY}", "fillcolor=#cfe3f7")),
    *(f"-N{each}" for each in ("fontcolor=#14202e", f"fontname={_FONT}", "fontsize=12", "margin=0.18,0.09")),
    *(f"-E{each}" for each in (f"color={_GREY}", f"fontcolor={_GREY}", f"fontname={_FONT}", "fontsize=11")),
]

html_theme = "furo"
html_title = f"aioelastic {version}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_copy_source = False
html_show_sphinx = False

for _name, _home in aioelastic._HOMES.items():  # noqa: SLF001 - see below
    # A public name says that it lives in the face, but the words below its members are in the module of its home.
    getattr(aioelastic, _name).__module__ = f"aioelastic.{_home}"

for _field in PyObject.doc_field_types:
    if _field.name == "variable":
        _field.label = "Attributes"


def plain_signature(
    app: Sphinx,  # noqa: ARG001 - the signature of Sphinx's event
    what: str,  # noqa: ARG001 - see above
    name: str,  # noqa: ARG001 - see above
    obj: object,
    options: object,  # noqa: ARG001 - see above
    signature: str | None,
    return_annotation: str | None,
) -> tuple[str | None, str | None]:
    """Write defaults such as ``<Std.NONE: 0>`` as they are written in a program: Sphinx cannot read them otherwise."""
    if isinstance(obj, type) and issubclass(obj, enum.Enum):
        # Its members are given, not made.
        return "", None
    if signature is not None:
        signature = re.sub(r"<([A-Z][\w.]*): \d+>", r"\1", signature).replace("<factory>", "...")
    return signature, return_annotation


def setup(app: Sphinx) -> None:
    """Have signatures rewritten."""
    app.connect("autodoc-process-signature", plain_signature)
