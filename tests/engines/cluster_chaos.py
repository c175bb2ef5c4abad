"""Kill the workers of a cluster at random moments while bodies run on them, and count what happened."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from typing import Any

from workload import PROMPT, FinishedCalls, Places, make_tools, script

from toolsemble import Agent, Toolbox, ToolCall

AT_ONCE = 3
LONG = 900.0


class ClusterChaos:
    """Runs of an agent whose bodies run on a cluster, while a thread kills the processes that run them."""

    def __init__(self, places: Places, executor: Any, tools: list[str], *, kills: int, seed: int) -> None:
        self._places = places
        self._kills = kills
        self._random = random.Random(seed)  # noqa: S311 - the same moments each time
        self._killed: set[str] = set()
        self._finished = FinishedCalls(places)
        made = make_tools(places, pause=0.3)
        turn = [ToolCall(name, {"order": number}) for name in tools for number in (1, 2)]
        self._expected = [made_text(call) for call in turn] * 2
        box = Toolbox([made[name] for name in tools], executor=executor)
        self._agent = Agent(script(turn, turn, "All done."), box, name="clerk", journal=places.journal())

    async def run(self) -> dict[str, Any]:
        """Return what was found."""
        began, results = time.monotonic(), []
        killing = asyncio.create_task(self._kill())
        async with asyncio.timeout(LONG):
            while not killing.done():
                ids = [f"run-{len(results) + number}" for number in range(AT_ONCE)]
                results += await asyncio.gather(*(self._agent.run(PROMPT, run_id=each) for each in ids))
        told = [[record.reply.text for record in result.tool_calls] for result in results]
        lost = [text for texts in told for text in texts if "it is unknown whether it took effect" in text]
        same = [all(a == b or a in lost for a, b in zip(texts, self._expected, strict=True)) for texts in told]
        return {
            "kills": len(self._killed),
            "runs": len(results),
            "calls": len(self._places.starts()),
            "effects twice": len(self._places.repeated_effects()),
            "finished calls repeated": self._finished.check(),
            "unknown outcomes told": len(lost),
            "results equal": sum(same),
            "seconds": round(time.monotonic() - began, 1),
        }

    async def _kill(self) -> None:
        """Kill processes in the middle of a body."""
        while len(self._killed) < self._kills:
            await asyncio.sleep(self._random.uniform(0.2, 1.0))
            await asyncio.to_thread(self._finished.check)
            running: dict[str, str] = {}
            for what, key, _, process in self._places.lines():
                if what == "start":
                    running[key] = process
                else:
                    running.pop(key, None)
            alive = sorted(set(running.values()) - self._killed)
            if alive:
                victim = self._random.choice(alive)
                os.kill(int(victim), signal.SIGKILL)
                self._killed.add(victim)


def made_text(call: ToolCall) -> str:
    """Return what a call of the workload returns."""
    order = call.arguments["order"]
    return {"look": f"order {order}", "label": f"labelled {order}", "charge": f"charged {order}"}[call.name]
