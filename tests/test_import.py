"""`import minispec` needs torch, numpy, safetensors and tokenizers alone."""

import subprocess
import sys

FORBIDDEN = ["IPython", "ipywidgets", "jupyter", "jupyter_client", "jupyterlab", "matplotlib", "nbclient", "nbformat",
             "notebook", "transformers"]
SCRIPT = """
import sys
for name in {forbidden}:
    sys.modules[name] = None                    # from here on `import name` raises ImportError
import minispec
from minispec import cli
cli.parser()
"""


def test_the_package_and_its_command_line_import_without_notebook_packages():
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(forbidden=FORBIDDEN)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
