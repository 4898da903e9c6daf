"""Text the embedded pair learns from, all of it made here or taken from Python's own documentation.

A document is a list of turns ``(role, text)``; role ``"text"`` marks plain prose without a chat frame.
Everything is drawn from one ``random.Random``, so a seed names a corpus.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from . import facts
from .pydocs import Docs

Turn = tuple[str, str]
Document = list[Turn]

NAMES = [
    "Anna",
    "Ben",
    "Clara",
    "David",
    "Emma",
    "Felix",
    "Grace",
    "Hugo",
    "Ida",
    "Jack",
    "Kate",
    "Leo",
    "Mia",
    "Noah",
    "Olga",
    "Paul",
    "Rosa",
    "Sam",
    "Tom",
    "Zoe",
]
ANIMALS = ["cat", "dog", "fox", "owl", "bear", "mouse", "rabbit", "duck", "horse", "goat", "frog", "hen"]
PLACES = ["forest", "river", "village", "garden", "mountain", "harbour", "market", "old tower", "meadow", "library"]
OBJECTS = ["lamp", "key", "book", "boat", "kite", "map", "basket", "bell", "drum", "ladder", "coin", "hat"]
COLOURS = ["red", "blue", "green", "yellow", "white", "black", "brown", "silver"]
MOODS = ["happy", "tired", "brave", "curious", "sad", "quiet", "proud", "hungry"]
WEATHER = ["It was a sunny morning", "It was a cold evening", "The rain had just stopped", "Snow lay on the ground"]
FOOD = ["bread", "soup", "apples", "cheese", "cake", "honey", "rice", "pears"]
WORDS = sorted({*ANIMALS, *OBJECTS, *COLOURS, *MOODS, *FOOD, "stone", "cloud", "winter", "paper", "window", "bridge"})


def qa(question: str, answer: str) -> Document:
    return [("user", question), ("assistant", answer)]


def about_edgespec(rng: random.Random) -> Document:
    questions, answer = rng.choice(facts.EDGESPEC)
    return qa(rng.choice(questions), answer)


def general_fact(rng: random.Random) -> Document:
    kind, (key, value) = rng.choice([(k, rng.choice(pairs)) for k, pairs in facts.PAIRS.items()])
    question, answer = rng.choice(facts.FRAMES[kind])
    return qa(question.format(k=key, v=value), answer.format(k=key, v=value))


def arithmetic(rng: random.Random) -> Document:
    a, b = rng.randint(0, 20), rng.randint(0, 20)
    kind = rng.randrange(4)
    if kind == 0:
        return qa(rng.choice(["What is {} plus {}?", "Add {} and {}.", "{} + {} = ?"]).format(a, b), f"{a} + {b} = {a + b}.")
    if kind == 1:
        a, b = max(a, b), min(a, b)
        return qa(rng.choice(["What is {} minus {}?", "{} - {} = ?"]).format(a, b), f"{a} - {b} = {a - b}.")
    if kind == 2:
        a, b = rng.randint(0, 10), rng.randint(0, 10)
        return qa(rng.choice(["What is {} times {}?", "Multiply {} by {}.", "{} * {} = ?"]).format(a, b), f"{a} * {b} = {a * b}.")
    if a == b:
        return qa(f"Which is larger, {a} or {b}?", f"They are equal: both are {a}.")
    return qa(f"Which is larger, {a} or {b}?", f"{max(a, b)} is larger than {min(a, b)}.")


def counting(rng: random.Random) -> Document:
    start = rng.randint(0, 30)
    stop = start + rng.randint(3, 14)
    if rng.random() < 0.3:
        numbers = range(stop, start - 1, -1)
        return qa(f"Count down from {stop} to {start}.", ", ".join(map(str, numbers)) + ".")
    return qa(f"Count from {start} to {stop}.", ", ".join(map(str, range(start, stop + 1))) + ".")


def story_text(rng: random.Random) -> str:
    name, friend = rng.sample(NAMES, 2)
    animal, place, thing = rng.choice(ANIMALS), rng.choice(PLACES), rng.choice(OBJECTS)
    colour, mood, food = rng.choice(COLOURS), rng.choice(MOODS), rng.choice(FOOD)
    opening = rng.choice(WEATHER)
    middle = rng.choice(
        [
            f"{name} wanted to keep the {thing}, but the {animal} said that it belonged to {friend}.",
            f"A {animal} came out of the grass and looked at the {thing}. It seemed to know the way home.",
            f"{name} asked the {animal} for help, and together they carried the {thing} to {friend}.",
            f"{friend} was looking for the {thing} too, so they decided to share it.",
        ]
    )
    ending = rng.choice(
        [
            f"In the evening they ate {food} together and everyone was glad.",
            f"From that day on, {name} and the {animal} were good friends.",
            f"{name} went home and told the whole family about the {colour} {thing}.",
            f"They laughed, shared some {food}, and walked back to the {place}.",
        ]
    )
    return (
        f"{opening}, and {name} was {mood}. {name} walked to the {place} and found a {colour} {thing}. "
        f'"Whose {thing} is this?" {name} asked. {middle} {ending}'
    )


def story(rng: random.Random) -> Document:
    text = story_text(rng)
    if rng.random() < 0.3:
        return [("text", text)]
    return qa(rng.choice(["Tell me a short story.", "Write a short story.", "Please tell me a story."]), text)


def story_about(rng: random.Random) -> Document:
    text = story_text(rng)
    name = next(word for word in text.replace(",", "").split() if word in NAMES)
    return qa(rng.choice([f"Tell me a story about {name}.", f"Write a short story about {name}."]), text)


def copying(rng: random.Random) -> Document:
    words = [rng.choice(WORDS) for _ in range(rng.randint(2, 18))]
    phrase = " ".join(words)
    return qa(rng.choice(["Repeat after me: {}", "Say this again: {}", "Copy this line: {}"]).format(phrase), phrase)


def listing(rng: random.Random) -> Document:
    words = rng.sample(WORDS, rng.randint(3, 7))
    line = ", ".join(words)
    kind = rng.randrange(4)
    if kind == 0:
        return qa(f"Sort these words: {line}.", ", ".join(sorted(words)) + ".")
    if kind == 1:
        return qa(f"What is the first word in this list: {line}?", f"The first word is {words[0]}.")
    if kind == 2:
        return qa(f"What is the last word in this list: {line}?", f"The last word is {words[-1]}.")
    return qa(f"Write these words as a list: {line}.", "\n".join(f"- {word}" for word in words))


def small_talk(rng: random.Random) -> Document:
    turns: Document = []
    for question, answer in rng.sample(facts.TALK, rng.randint(1, 3)):
        turns += qa(rng.choice(question), rng.choice(answer))
    name = rng.choice(NAMES)
    if rng.random() < 0.4:
        turns += qa(f"My name is {name}.", f"Nice to meet you, {name}!")
        turns += general_fact(rng)
        turns += qa("What is my name?", f"Your name is {name}.")
    if rng.random() < 0.2:
        turns.insert(0, ("system", rng.choice(facts.SYSTEM)))
    return turns


def recall(rng: random.Random, docs: Docs, filler: int) -> Document:
    """A fact, `filler` characters of other text, then the question: what was said far above?"""
    colour, thing, code = rng.choice(COLOURS), rng.choice(OBJECTS), rng.randint(100, 9999)
    fact = f"Remember this: the code of the {colour} {thing} is {code}."
    text = ""
    while len(text) < filler:
        text += "\n\n" + (story_text(rng) if rng.random() < 0.6 else docs.passage(rng, 500))
    ask = f"What is the code of the {colour} {thing}?"
    answer = f"The code of the {colour} {thing} is {code}."
    return qa(f"{fact}{text[:filler]}\n\n{ask}", answer)


def doc_question(rng: random.Random, docs: Docs) -> Document:
    name, summary = docs.entry(rng)
    return qa(rng.choice([f"What does {name} do?", f"What is {name} in Python?", f"Explain {name}."]), summary)


def documents(rng: random.Random, docs: Docs) -> Iterator[Document]:
    """An endless, seeded stream of documents; weights are shares of documents, not of tokens."""
    makers: list[tuple[float, Callable[[], Document]]] = [
        (10, lambda: about_edgespec(rng)),
        (14, lambda: general_fact(rng)),
        (14, lambda: arithmetic(rng)),
        (4, lambda: counting(rng)),
        (10, lambda: story(rng)),
        (6, lambda: story_about(rng)),
        (8, lambda: copying(rng)),
        (6, lambda: listing(rng)),
        (8, lambda: small_talk(rng)),
        (3, lambda: recall(rng, docs, rng.choice([100, 400, 1500, 3500, 6000]))),
        (7, lambda: doc_question(rng, docs)),
        (7, lambda: [("text", docs.passage(rng, rng.choice([800, 2000, 5000])))]),
    ]
    weights = [weight for weight, _ in makers]
    while True:
        yield rng.choices(makers, weights)[0][1]()
