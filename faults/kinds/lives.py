"""How the next process in a place starts: its clock, its name, the server that it connects to."""

from __future__ import annotations

from random import Random

from faults.cast import REPLICAS, WORKERS
from faults.places import Life
from faults.topics import RESERVED
from pulse.failpoints import names

_SKEWED_SHARE, _MOST_SECONDS_AHEAD = 0.3, 3600
_SAME_NAME_SHARE = 0.3
_CONCURRENCIES = (1, 4, 10)

_OF_WORKERS, _OF_CLIENTS = "worker.", "client."
# They act when a server starts and at retention, which none reaches within a run.
_NOT_IN_A_RUN = ("migration.", "jobs.forgotten")
_ACTIONS = {"kill": 5, "stop": 2, "error": 3, "delay:0.3": 1, "delay:2": 1}
_MOST_POINTS = 3


def draw_life(random: Random, target: str) -> Life:
    is_worker = target in WORKERS
    return Life(
        seconds_ahead=_seconds_ahead(random),
        replica=_replica(random, target) if is_worker else "",
        keeps_name=is_worker and random.random() < _SAME_NAME_SHARE,
        concurrency=random.choice(_CONCURRENCIES),
    )


def _replica(random: Random, worker: str) -> str:
    """Each server has one worker that stays with it, and so have two servers one with few topics each.

    The others start again anywhere.
    """
    staying = [*zip(WORKERS, REPLICAS, strict=False), *zip(WORKERS[-len(RESERVED) :], REPLICAS, strict=False)]
    return dict(staying).get(worker) or random.choice(REPLICAS)


def _seconds_ahead(random: Random) -> int:
    if random.random() > _SKEWED_SHARE:
        return 0
    return random.choice((-1, 1)) * random.randrange(1, _MOST_SECONDS_AHEAD)


def draw_failpoints(random: Random, target: str) -> str:
    """Arm some of the points that this process passes, most of them at different passes."""
    points = points_of(target)
    chosen = random.sample(points, min(len(points), random.randint(1, _MOST_POINTS)))
    return ";".join(f"{name}={_action(random, name)}{_pass(random)}" for name in chosen)


def points_of(target: str) -> list[str]:
    if target in WORKERS:
        return [name for name in names() if name.startswith(_OF_WORKERS)]
    if target in REPLICAS:
        others = (_OF_WORKERS, _OF_CLIENTS, *_NOT_IN_A_RUN)
        return [name for name in names() if not name.startswith(others)]
    return [name for name in names() if name.startswith(_OF_CLIENTS)]


def _action(random: Random, name: str) -> str:
    actions = dict(_ACTIONS)
    if name.startswith((_OF_WORKERS, _OF_CLIENTS)):
        del actions["error"]
    return random.choices(list(actions), weights=list(actions.values()))[0]


def _pass(random: Random) -> str:
    return random.choice(("@1", "@2", "@5", "@20", "@1/5", "@1/30"))
