"""Parts of displays in HTML, built element by element, so all text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from shardcall_core.markup.colours import STYLE, device_colour, phase_colour

MAX_ROWS = 500
_MAX_CHARACTERS = 2000
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # which HTML does not have


def page(title: str, *parts: Element) -> str:
    """Returns a display: its title, if it has one, and its parts below one another."""
    display = Element("div", {"class": "shardcall"})
    SubElement(display, "style").text = STYLE
    if title:
        display.append(text("div", title, "sc-title"))
    display.extend(parts)
    # The style has no characters to escape, which the HTML method would leave as they are in it.
    return tostring(display, encoding="unicode", method="html")


def text(tag: str, content: str, style: str = "", *, max_characters: int = _MAX_CHARACTERS) -> Element:
    """Returns an element with a text, shortened if it is very long."""
    element = Element(tag, {"class": style} if style else {})
    shown = content if len(content) <= max_characters else content[:max_characters] + "…"
    element.text = _CONTROL.sub("�", shown)
    return element


def beside(*parts: Element) -> Element:
    """Returns parts beside each other, or below where there is no space."""
    row = Element("div", {"class": "sc-row"})
    for part in parts:
        SubElement(row, "div", {"class": "sc-part"}).append(part)
    return row


def spaced(part: Element) -> Element:
    """Returns a part with space above it."""
    box = Element("div", {"class": "sc-row"})
    box.append(part)
    return box


def scrolled(part: Element) -> Element:
    """Returns a part of limited height, which scrolls."""
    box = Element("div", {"class": "sc-scroll"})
    box.append(part)
    return box


def facts(rows: Mapping[str, str]) -> Element:
    """Returns a table of labels and texts."""
    table = Element("table")
    body = SubElement(table, "tbody")
    for label, content in rows.items():
        line = SubElement(body, "tr")
        line.extend([text("th", label), text("td", content)])
    return table


def listing(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Element:
    """Returns a table with a heading; the texts of its first column are code."""
    table = Element("table", {"class": "sc-list"})
    SubElement(SubElement(table, "thead"), "tr").extend(text("th", name) for name in columns)
    body = SubElement(table, "tbody")
    every = list(rows)
    for first, *others in every[:MAX_ROWS]:
        line = SubElement(body, "tr")
        SubElement(line, "td").append(text("code", first))
        line.extend(text("td", content) for content in others)
    if len(every) > MAX_ROWS:
        SubElement(body, "tr").append(text("td", f"… {len(every) - MAX_ROWS:,} more …"))
    return table


def bar(seconds: Mapping[str, float], total_s: float) -> Element:
    """Returns a bar of phases and a table of their times.

    Args:
        seconds: the seconds of each phase; those that took none are left out.
        total_s: the seconds that the bar represents; phases that overlap make it as long as their sum.
    """
    chart, full_s = Element("div"), max(total_s, sum(seconds.values())) or 1.0
    line = SubElement(chart, "div", {"class": "sc-bar"})
    body = SubElement(SubElement(chart, "table"), "tbody")
    for index, (name, spent_s) in enumerate(seconds.items()):
        if spent_s <= 0:
            continue
        colour, share = phase_colour(index), spent_s / full_s
        SubElement(line, "div", style=f"background:{colour};width:{share:.2%}", title=f"{name} {share:.1%}")
        row = SubElement(body, "tr")
        label = SubElement(row, "th", scope="row")
        SubElement(label, "span", {"class": "sc-swatch", "style": f"background:{colour}"}).tail = name
        row.extend([text("td", f"{spent_s * 1e3:.3f} ms", "sc-number"), text("td", f"{share:.1%}", "sc-number")])
    return chart


def progress(label: str, share: float | None, amounts: str) -> Element:
    """Returns a bar of something that is not finished.

    Args:
        label: what is going on.
        share: the part that is done, 0 to 1; None if it is not known.
        amounts: the text beside the bar.
    """
    row = Element("div", {"class": "sc-progress"})
    row.append(text("span", label))
    line = SubElement(row, "div", {"class": "sc-bar", "role": "progressbar"})
    SubElement(line, "div", style=f"background:{phase_colour(0)};width:{min(share or 0.0, 1.0):.1%}")
    row.append(text("span", amounts))
    return row


def devices(rows: Sequence[Sequence[int]]) -> Element:
    """Returns a grid of devices, each with its id and its colour."""
    table = Element("table")
    body = SubElement(table, "tbody")
    for row in rows:
        line = SubElement(body, "tr")
        for device in row:
            cell = text("td", str(device), "sc-device")
            cell.set("style", f"background:{device_colour(device)}!important")
            line.append(cell)
    return table
