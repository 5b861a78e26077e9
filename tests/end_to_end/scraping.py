"""Asking a server for its metrics, as Prometheus does, and reading its log."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The metrics of a server at one moment.

    Attributes:
        families: the names of the families, with the ending that their samples have.
    """

    def __init__(self, text: str) -> None:
        self.families: set[str] = set()
        self._samples: list[tuple[str, Mapping[str, str], float]] = []
        for family in text_string_to_metric_families(text):
            self.families.add(f"{family.name}_total" if family.type == "counter" else family.name)
            self._samples += [(sample.name, sample.labels, sample.value) for sample in family.samples]

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels among theirs."""
        return sum(value for key, has, value in self._samples if key == name and labels.items() <= has.items())

    def values(self, label: str) -> set[str]:
        """Every value of a label."""
        return {has[label] for _, has, _ in self._samples if label in has}


def log_lines(log: Path) -> Iterator[dict[str, Any]]:
    """The lines of a server's log."""
    return (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))


def metrics_url(log: Path) -> str:
    """Returns the metrics address of a server that was started with ``--metrics-port 0``."""
    return next(str(line["url"]) for line in log_lines(log) if line["event"] == "metrics")


def scrape(url: str) -> Scrape:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return Scrape(answer.read().decode())
