"""A lesson in a real JupyterLab, in a real browser: run all cells, move the stepper by a key, see it change."""

import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from browser import stop, wait_for

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
IDLE = "document.querySelector('#jp-main-statusbar')?.textContent.includes('| Idle')"      # before, cells are not run
PROMPTS = "[...document.querySelectorAll('.jp-Notebook .jp-InputPrompt')].map(prompt => prompt.textContent).join(' ')"
HANDLE = ".widget-hslider .noUi-handle"
STEPPER = f"document.querySelector('{HANDLE}').closest('.widget-vbox')"
PICTURE = f"{STEPPER}.querySelector('figure').getAttribute('aria-label')"
DRAWING = f"{STEPPER}.querySelector('figure svg').outerHTML"


@pytest.fixture(params=["00_tour", "10_parallel_drafting", "11_sharing_the_cache"])
def lab(tmp_path, request):
    """A JupyterLab without any settings of this machine's user, in a folder with one lesson -> its address and token."""
    folder, home = tmp_path / "lessons", tmp_path / "home"
    folder.mkdir()
    shutil.copy(NOTEBOOKS / f"{request.param}.ipynb", folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {f"{name}_DIR": str(home / name) for name in ("JUPYTER_CONFIG", "JUPYTER_DATA", "JUPYTER_RUNTIME",
                                                       "JUPYTERLAB_SETTINGS", "JUPYTERLAB_WORKSPACES")}
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
         f"--ServerApp.port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=lesson"],
        cwd=folder, env=os.environ | own | {"IPYTHONDIR": str(home)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{port}/api?token=lesson"), "JupyterLab to start")
        yield f"http://127.0.0.1:{port}/lab/tree/{request.param}.ipynb?token=lesson"
    finally:
        stop(server)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def test_a_lesson_runs_and_its_stepper_moves_by_keyboard(browser, lab):
    browser.open(lab)
    browser.wait(IDLE)
    browser.click(".jp-NotebookPanel .jp-MarkdownOutput")
    browser.wait("document.activeElement.closest('.jp-Notebook')")
    browser.evaluate("[...document.querySelectorAll('.lm-MenuBar-item')].find(e => e.textContent == 'Run').id = 'run'")
    browser.click("#run")
    browser.click('.lm-Menu-item[data-command="runmenu:run-all"]:not(.lm-mod-disabled)')
    browser.wait(f"{PROMPTS}.includes('*')", 60)
    browser.wait(f"document.querySelector('{HANDLE}')")
    browser.wait(f"!{PROMPTS}.includes('*')")
    first = browser.evaluate(DRAWING)
    assert "step 1 of" in browser.evaluate(PICTURE)
    browser.evaluate(f"document.querySelector('{HANDLE}').focus()")
    browser.press("ArrowRight")
    browser.wait(f"{PICTURE}.includes('step 2 of')")
    assert browser.evaluate(DRAWING) != first
    browser.press("ArrowLeft")
    browser.wait(f"{PICTURE}.includes('step 1 of')")
    assert browser.evaluate(DRAWING) == first
    assert browser.evaluate("document.querySelector('.jp-OutputArea-output[data-mime-type*=stderr]')") is None
    assert browser.errors == []
