"""Turns are fair between clients, and nobody's leaving stops the line."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.server.errors import Refused
from edgespec.server.turnstile import Turnstile


async def use(turnstile: Turnstile, client: str, done: list[str], work: Callable[[], Awaitable[object]]) -> None:
    async with turnstile.turn(client):
        assert turnstile.running == 1
        await work()
        done.append(client)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_one_client_with_many_requests_holds_nobody_up() -> None:
    async def scene() -> list[str]:
        turnstile = Turnstile(20)
        done: list[str] = []
        tasks = [asyncio.create_task(use(turnstile, name, done, settle)) for name in "aaaaabcb"]
        await asyncio.gather(*tasks)
        assert (turnstile.running, turnstile.waiting) == (0, 0)
        return done

    assert "".join(asyncio.run(scene())) == "aabcabaa"


def test_too_many_are_told_to_come_again() -> None:
    async def scene() -> Refused:
        turnstile, gate = Turnstile(1), asyncio.Event()
        tasks = [asyncio.create_task(use(turnstile, "a", [], gate.wait)) for _ in range(2)]
        await settle()
        with pytest.raises(Refused) as refused:
            async with turnstile.turn("b"):
                pass
        gate.set()
        await asyncio.gather(*tasks)
        return refused.value

    refused = asyncio.run(scene())
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) >= 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), min_size=1, max_size=12))
def test_whoever_leaves_the_others_are_served(visits: list[tuple[str, int]]) -> None:
    """Each client is cancelled after so many steps of the loop, waiting or served."""

    async def scene() -> None:
        turnstile = Turnstile(100)
        tasks = [asyncio.create_task(use(turnstile, client, [], settle)) for client, _ in visits]
        done: list[str] = []
        stay = asyncio.create_task(use(turnstile, "stays", done, settle))
        for step in range(13):
            for task, (_, leave) in zip(tasks, visits, strict=True):
                if leave == step:
                    task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.wait_for(stay, 10)
        assert done == ["stays"]
        assert (turnstile.running, turnstile.waiting) == (0, 0)

    asyncio.run(scene())
