"""Makes docs/reference/alerts.md from the rules of deploy/prometheus/alerts.yml."""

import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # stubs would be a dependency for one call

from tools.markdown import generated_from

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
PAGE = ROOT / "docs" / "reference" / "alerts.md"

INTRODUCTION = """\
# Alerts

The rules are in [`deploy/prometheus/alerts.yml`](../../deploy/prometheus/alerts.yml). Thresholds are a
starting point: adjust them to your jobs. Each alert carries the text of its entry as annotations:
`description`, `look_at` and `do`. Its `runbook_url` leads to the entry; put the address where you publish
this page in front of it.

"""
_PAGE_OF_DOCS = re.compile(r"\bdocs/([\w/-]+\.md)(#[\w-]+)?")


def page() -> str:
    """Return the page as it should be. Raises LookupError if an alert lacks a part of its runbook."""
    rules = [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]
    names = {rule["alert"] for rule in rules}
    source = generated_from("deploy/prometheus/alerts.yml")
    return source + INTRODUCTION + "\n".join(_entry(rule, names) for rule in rules)


def _entry(rule: dict[str, Any], names: set[str]) -> str:
    notes = rule["annotations"]
    if missing := {"summary", "description", "look_at", "do"} - notes.keys():
        raise LookupError(f"{rule['alert']} in {RULES.name} has no {', '.join(sorted(missing))}")
    description, look_at, do = (_linked(notes[key], names) for key in ("description", "look_at", "do"))
    lasting = f" for {rule['for']}" if "for" in rule else ""
    return (
        f"## {rule['alert']}\n\n"
        f"{description}\n\n"
        f"- **Look at:** {look_at}\n"
        f"- **Do:** {do}\n"
        f"- **Fires** ({rule['labels']['severity']}) if this holds{lasting}:\n\n"
        f"  ```promql\n  {' '.join(rule['expr'].split())}\n  ```\n"
    )


def _linked(text: str, names: set[str]) -> str:
    """Return the text on one line; names of alerts and of pages become links."""
    text = re.sub(
        r"\bPulse[A-Z]\w+", lambda found: _link(found[0], f"#{found[0].lower()}", found[0] in names), text
    )
    text = _PAGE_OF_DOCS.sub(lambda found: f"[{found[1]}](../{found[1]}{found[2] or ''})", text)
    return " ".join(text.split())


def _link(text: str, target: str, is_known: bool) -> str:
    return f"[{text}]({target})" if is_known else text
