"""Colours, and the style sheet of all displays: those of the notebook's theme, else of the browser's, light or dark."""

from __future__ import annotations

import colorsys

_GOLDEN_ANGLE = 0.381966  # of a circle: hues this far apart differ for many devices

_PHASES = (
    *("#4e79a7", "#edc948", "#b07aa1", "#f28e2b", "#59a14f", "#76b7b2", "#e15759", "#9c755f"),
    "#8c959f",  # of the transport, in which nothing is computed
)

STYLE = """
.shardcall{
--sc-text:var(--jp-content-font-color1,var(--vscode-editor-foreground,#1f2328));
--sc-faint:var(--jp-content-font-color2,var(--vscode-descriptionForeground,#59636e));
--sc-line:var(--jp-border-color2,var(--vscode-panel-border,#d1d9e0));
--sc-ground:var(--jp-layout-color2,var(--vscode-textCodeBlock-background,#f6f8fa));
color:var(--sc-text);font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;max-width:60em}
@media (prefers-color-scheme:dark){.shardcall{
--sc-text:var(--jp-content-font-color1,var(--vscode-editor-foreground,#e6e6e6));
--sc-faint:var(--jp-content-font-color2,var(--vscode-descriptionForeground,#9198a1));
--sc-line:var(--jp-border-color2,var(--vscode-panel-border,#3d444d));
--sc-ground:var(--jp-layout-color2,var(--vscode-textCodeBlock-background,#212830))}}
.shardcall .sc-title{font-family:ui-monospace,Menlo,Consolas,monospace;font-weight:600;overflow-wrap:anywhere}
.shardcall .sc-row{display:flex;flex-wrap:wrap;gap:12px 24px;align-items:flex-start;margin-top:6px}
.shardcall .sc-part{flex:1 1 20em;min-width:0}
.shardcall .sc-scroll{max-height:28em;overflow:auto;margin-top:6px}
.shardcall table{border-collapse:collapse;margin:0;font-size:inherit;color:inherit}
.shardcall tr,.shardcall td,.shardcall th{background:none!important;border:0;text-align:left!important;
vertical-align:top;padding:1px 12px 1px 0;font-weight:400;max-width:44em;overflow-wrap:anywhere}
.shardcall th{color:var(--sc-faint);white-space:nowrap}
.shardcall .sc-list td,.shardcall .sc-list th{border-bottom:1px solid var(--sc-line);white-space:normal}
.shardcall .sc-number{text-align:right!important;font-variant-numeric:tabular-nums;white-space:nowrap}
.shardcall code,.shardcall pre{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px;color:inherit;
background:none;padding:0;margin:0}
.shardcall pre{background:var(--sc-ground);padding:6px 8px;border-radius:4px;overflow:auto}
.shardcall caption{caption-side:top;white-space:nowrap;color:var(--sc-faint);text-align:left;padding:0}
.shardcall .sc-bar{display:flex;height:14px;border-radius:3px;overflow:hidden;background:var(--sc-ground);
margin-bottom:6px;min-width:16em}
.shardcall .sc-bar div{flex:none}
.shardcall .sc-progress{display:flex;align-items:center;gap:10px}
.shardcall .sc-progress .sc-bar{flex:0 1 24em;margin:0}
.shardcall .shardcall-panel{fill:none}
.shardcall .sc-swatch{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
.shardcall .sc-device{min-width:2.5em;text-align:center!important;padding:6px 8px;color:#111;
border:2px solid var(--sc-line)}
"""


def device_colour(device: int) -> str:
    """Returns a light colour for a device, on which dark text is readable."""
    parts = colorsys.hls_to_rgb(device * _GOLDEN_ANGLE % 1, 0.84, 0.7)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def phase_colour(index: int) -> str:
    """Returns the colour of a phase of a call, which differs from both a light and a dark ground."""
    return _PHASES[index % len(_PHASES)]
