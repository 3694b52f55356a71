"""The player: a trace as one HTML file that needs no server, no network and no notebook. The frames are those of
frames.py.
"""

from __future__ import annotations

import json
from html import escape

from ..decoding.trace import Trace
from .frames import frames
from .ribbon import Decode

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>@TITLE@</title>
<style>
body { margin: 0 auto; max-width: 1280px; padding: 12px 20px; font: 18px Helvetica, Arial, sans-serif }
body, button { background: #fff; color: #1a1a1a }
h1 { font-size: 22px; margin: 4px 0 10px }
#stage svg { display: block; width: 100%; height: auto; max-height: calc(100vh - 200px) }
#caption { min-height: 2.8em; font-size: 20px; line-height: 1.4; margin: 10px 0 }
nav { display: flex; gap: 8px; align-items: center; flex-wrap: wrap }
button { font: inherit; min-width: 52px; padding: 6px 12px; border: 2px solid #1a1a1a; border-radius: 6px }
button:focus-visible, input:focus-visible { outline: 3px solid #0072b2; outline-offset: 2px }
input { flex: 1; min-width: 160px; accent-color: #0072b2 }
kbd { border: 1px solid #595959; border-radius: 4px; padding: 0 5px }
small { color: #595959 }
</style>
</head>
<body>
<h1>@TITLE@</h1>
<nav aria-label="Steps">
<button id="first" aria-label="first step">|◀</button>
<button id="back" aria-label="one step back">◀</button>
<button id="play" aria-pressed="false">Play</button>
<button id="next" aria-label="one step forward">▶</button>
<button id="last" aria-label="last step">▶|</button>
<input id="slider" type="range" min="0" max="@LAST@" value="0" aria-label="step">
<span id="count">1 / @COUNT@</span>
</nav>
<p id="caption" aria-live="polite">@CAPTION@</p>
<main id="stage">@FIRST@</main>
<p><small><kbd>←</kbd> <kbd>→</kbd> step, <kbd>Home</kbd> <kbd>End</kbd> first and last, <kbd>Space</kbd> play or pause.
✓ accepted, ✗ rejected, ↻ correction, ★ bonus; p target, q draft.</small></p>
<script type="application/json" id="frames">@FRAMES@</script>
<script>
const $ = id => document.getElementById(id);
const frames = JSON.parse($("frames").textContent);
let now = 0, timer = null;

function show(step) {
  now = Math.max(0, Math.min(frames.length - 1, step));
  const frame = frames[now];
  $("stage").innerHTML = frame.svg;
  $("caption").textContent = frame.title + ". " + frame.caption;
  $("slider").value = now;
  $("slider").setAttribute("aria-valuetext", frame.title);
  $("count").textContent = (now + 1) + " / " + frames.length;
  if (timer && now === frames.length - 1) pause();
}
function pause() {
  clearInterval(timer);
  timer = null;
  $("play").textContent = "Play";
  $("play").setAttribute("aria-pressed", "false");
}
function play() {
  if (timer) return pause();
  if (now === frames.length - 1) show(0);
  timer = setInterval(() => show(now + 1), 1800);
  $("play").textContent = "Pause";
  $("play").setAttribute("aria-pressed", "true");
}
const actions = { ArrowRight: () => show(now + 1), ArrowLeft: () => show(now - 1),
                  Home: () => show(0), End: () => show(frames.length - 1), " ": play };

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in actions)) return;
  if (event.key === " " && event.target.tagName === "BUTTON") return;    // the button's own key
  event.preventDefault();
  actions[event.key]();
});
$("first").onclick = actions.Home;
$("back").onclick = actions.ArrowLeft;
$("play").onclick = play;
$("next").onclick = actions.ArrowRight;
$("last").onclick = actions.End;
$("slider").oninput = event => show(Number(event.target.value));
const asked = Number(location.hash.slice(1));                           // page.html#12 opens at step 12
if (asked) show(asked - 1);
</script>
</body>
</html>
"""


def player(trace: Trace, decode: Decode, title: str = "Speculative decoding, step by step") -> str:
    """The page. Raises ValueError for a trace without rounds."""
    shown = frames(trace, decode)
    if not shown:
        raise ValueError("this trace has no rounds: there is nothing to play")
    data = json.dumps([{"title": f.title, "caption": f.caption, "svg": f.svg} for f in shown], ensure_ascii=False)
    fields = {"TITLE": escape(title), "LAST": str(len(shown) - 1), "COUNT": str(len(shown)), "FIRST": shown[0].svg,
              "CAPTION": escape(f"{shown[0].title}. {shown[0].caption}"),
              "FRAMES": data.replace("<", "\\u003c")}                    # nothing in it can end the script element
    head, *parts = PAGE.split("@")                                       # text, name, text, name, ..., text
    return head + "".join(fields[name] + after for name, after in zip(parts[::2], parts[1::2]))
