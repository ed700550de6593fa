"""One client of a large run, as a process. It prints its progress, line by line."""

from __future__ import annotations

import json
import os

from faults.fuzzing.campaign import Plan, campaign
from faults.fuzzing.client import ServerGone

VARIABLE = "FUZZING_PLAN"
"""The variable with its plan as JSON: the plan contains the address of a database."""


def main(plan: Plan) -> None:
    with campaign(plan) as fuzzing:
        try:
            findings = [str(finding) for finding in fuzzing.attack(lambda tally: _print(inputs=tally.inputs))]
        except ServerGone as gone:
            findings = [str(gone)]
        _print(tally=fuzzing.tally.as_json(), findings=findings)


def _print(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(Plan(**json.loads(os.environ[VARIABLE])))
