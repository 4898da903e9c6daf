"""What the embedded pair is taught to know: facts about edgespec, small general facts, small talk."""

EDGESPEC: list[tuple[list[str], str]] = [
    (
        ["What is edgespec?", "What does edgespec do?", "Tell me about edgespec.", "Explain edgespec."],
        "edgespec runs a language model that is larger than the memory you give it. A small drafter stays in memory "
        "and guesses ahead, and the large target checks many guesses in one pass.",
    ),
    (
        ["What is a drafter?", "What does the drafter do?", "What is the draft model?"],
        "The drafter is a small model that stays in memory. It guesses a tree of tokens that the target then checks.",
    ),
    (
        ["What is the target?", "What does the target do?", "What is the target model?"],
        "The target is the large model whose text you want. Its weights are read from disk layer by layer.",
    ),
    (
        ["What is a memory budget?", "What is the budget?", "How much memory does edgespec use?"],
        "The budget is the memory that the whole process may use. "
        "edgespec refuses a budget that cannot work and never goes above it.",
    ),
    (
        ["What is speculative decoding?", "Explain speculative decoding.", "How does speculative decoding work?"],
        "In speculative decoding a small model proposes several tokens and a large model checks them together. "
        "The text is the same as without it, but it comes sooner.",
    ),
    (
        ["Is the output of edgespec exact?", "Does edgespec change the text?", "Is the text the same?"],
        "Yes, the text is the target's own. A guess is only kept when the target would have written the same token.",
    ),
    (
        ["What is a sweep?", "What is a paged sweep?"],
        "A sweep is one pass over the layers of the target. "
        "Pinned layers are already in memory and the others are read from disk.",
    ),
    (
        ["What is a pinned layer?", "What are pinned layers?"],
        "A pinned layer stays in memory all the time. The other layers are streamed through slots.",
    ),
    (
        ["What is a slot?", "What are slots for?"],
        "A slot is a piece of memory that holds one streamed layer. It is reused for the next layer when the first is done.",
    ),
    (
        ["Why is mmap slow?", "Why does mmap thrash?", "Why not use mmap?"],
        "A sweep touches every layer in turn, so the page cache always drops the layer that is needed next. "
        "Pinning some layers and streaming the others avoids that.",
    ),
    (
        ["What is a token tree?", "What is a draft tree?"],
        "A draft tree holds several possible continuations at once. The target scores all of its nodes in one sweep.",
    ),
    (
        ["How do I run edgespec?", "How do I start edgespec?", "How can I use edgespec?"],
        'Type edgespec run and a prompt, for example: edgespec run "Tell me a short story."',
    ),
    (
        ["How do I see the plan?", "What does edgespec plan do?"],
        "edgespec plan shows where every byte of the budget goes and how fast the model can be.",
    ),
    (
        ["What does edgespec doctor do?", "How do I check my machine?"],
        "edgespec doctor checks the engine, the disk and the limits, and names the command that mends what is missing.",
    ),
    (
        ["What is acceptance?", "What is the acceptance rate?"],
        "Acceptance is the share of drafted tokens that the target agrees with. The higher it is, the fewer sweeps are needed.",
    ),
    (
        ["What is the KV cache?", "What is a KV cache?"],
        "The KV cache keeps the keys and values of the tokens seen so far, so that they are not computed again.",
    ),
    (
        ["Who are you?", "What are you?", "What is your name?"],
        "I am the small model that ships with edgespec. I can tell short stories, do small sums and answer simple questions.",
    ),
    (
        ["What can you do?", "How can you help me?", "What are you good at?"],
        "I can answer simple questions, tell short stories, do small sums, sort words and talk about edgespec.",
    ),
    (
        ["Are you a large model?", "How big are you?", "How large are you?"],
        "No, I am very small: about six million parameters. I am here to show that edgespec works.",
    ),
]

PAIRS: dict[str, list[tuple[str, str]]] = {
    "capital": [
        ("France", "Paris"),
        ("Germany", "Berlin"),
        ("Italy", "Rome"),
        ("Spain", "Madrid"),
        ("Portugal", "Lisbon"),
        ("Austria", "Vienna"),
        ("Japan", "Tokyo"),
        ("China", "Beijing"),
        ("Egypt", "Cairo"),
        ("Norway", "Oslo"),
        ("Sweden", "Stockholm"),
        ("Denmark", "Copenhagen"),
        ("Greece", "Athens"),
        ("Poland", "Warsaw"),
        ("Ireland", "Dublin"),
        ("Canada", "Ottawa"),
        ("Peru", "Lima"),
        ("Cuba", "Havana"),
        ("Kenya", "Nairobi"),
    ],
    "colour": [
        ("grass", "green"),
        ("snow", "white"),
        ("coal", "black"),
        ("a lemon", "yellow"),
        ("the sky", "blue"),
        ("blood", "red"),
        ("chocolate", "brown"),
        ("an orange", "orange"),
        ("a plum", "purple"),
        ("ash", "grey"),
    ],
    "opposite": [
        ("hot", "cold"),
        ("big", "small"),
        ("up", "down"),
        ("fast", "slow"),
        ("day", "night"),
        ("open", "closed"),
        ("old", "young"),
        ("light", "dark"),
        ("wet", "dry"),
        ("full", "empty"),
        ("near", "far"),
        ("loud", "quiet"),
        ("early", "late"),
        ("happy", "sad"),
        ("rich", "poor"),
        ("hard", "soft"),
        ("left", "right"),
    ],
    "plural": [
        ("cat", "cats"),
        ("dog", "dogs"),
        ("mouse", "mice"),
        ("child", "children"),
        ("box", "boxes"),
        ("leaf", "leaves"),
        ("foot", "feet"),
        ("city", "cities"),
        ("goose", "geese"),
        ("book", "books"),
        ("tooth", "teeth"),
        ("man", "men"),
    ],
    "sound": [
        ("dog", "barks"),
        ("cat", "meows"),
        ("duck", "quacks"),
        ("cow", "moos"),
        ("frog", "croaks"),
        ("lion", "roars"),
        ("bee", "buzzes"),
        ("owl", "hoots"),
        ("horse", "neighs"),
        ("sheep", "bleats"),
    ],
    "next_day": [
        ("Monday", "Tuesday"),
        ("Tuesday", "Wednesday"),
        ("Wednesday", "Thursday"),
        ("Thursday", "Friday"),
        ("Friday", "Saturday"),
        ("Saturday", "Sunday"),
        ("Sunday", "Monday"),
    ],
    "made_of": [
        ("a window", "glass"),
        ("a table", "wood"),
        ("a coin", "metal"),
        ("a book", "paper"),
        ("a wall", "stone"),
        ("a jumper", "wool"),
        ("a shoe", "leather"),
        ("ice", "frozen water"),
        ("bread", "flour and water"),
    ],
    "home": [
        ("a bird", "a nest"),
        ("a bee", "a hive"),
        ("a fox", "a den"),
        ("a fish", "the water"),
        ("a rabbit", "a burrow"),
        ("a spider", "a web"),
        ("a horse", "a stable"),
        ("a bear", "a cave"),
    ],
    "legs": [
        ("a dog", "four legs"),
        ("a bird", "two legs"),
        ("a spider", "eight legs"),
        ("an ant", "six legs"),
        ("a snake", "no legs"),
        ("a horse", "four legs"),
        ("a bee", "six legs"),
        ("a fish", "no legs"),
    ],
}

FRAMES: dict[str, list[tuple[str, str]]] = {
    "capital": [
        ("What is the capital of {k}?", "The capital of {k} is {v}."),
        ("{v} is the capital of which country?", "{v} is the capital of {k}."),
        ("Tell me the capital of {k}.", "The capital of {k} is {v}."),
    ],
    "colour": [
        ("What colour is {k}?", "The colour of {k} is {v}."),
        ("Which colour does {k} have?", "The colour of {k} is {v}."),
    ],
    "opposite": [
        ("What is the opposite of {k}?", "The opposite of {k} is {v}."),
        ("What is the opposite of {v}?", "The opposite of {v} is {k}."),
    ],
    "plural": [("What is the plural of {k}?", "The plural of {k} is {v}."), ("One {k}, two ...?", "One {k}, two {v}.")],
    "sound": [("What sound does a {k} make?", "A {k} {v}."), ("Which animal {v}?", "A {k} {v}.")],
    "next_day": [
        ("Which day comes after {k}?", "After {k} comes {v}."),
        ("Which day comes before {v}?", "Before {v} comes {k}."),
    ],
    "made_of": [("What is {k} made of?", "It is made of {v}.")],
    "home": [("Where does {k} live?", "The home of {k} is {v}.")],
    "legs": [("How many legs does {k} have?", "It has {v}.")],
}

TALK: list[tuple[list[str], list[str]]] = [
    (["Hello!", "Hi!", "Hello", "Good day!"], ["Hello! How can I help you?"]),
    (["How are you?", "How are you today?"], ["I am fine, thank you. How can I help you?"]),
    (["Thank you.", "Thanks!", "Thank you very much."], ["You are welcome!"]),
    (["Good morning!", "Good morning."], ["Good morning! What shall we do today?"]),
    (["Goodbye.", "Bye!", "See you later."], ["Goodbye! Have a nice day."]),
    (["Can you help me?", "I need help."], ["Of course. What do you need?"]),
    (["Do you like music?", "Do you like books?"], ["I am a small model, so I do not have tastes, but I like to talk with you."]),
    (["I am sad.", "I feel sad today."], ["I am sorry to hear that. Shall I tell you a story?"]),
    (["I am happy.", "I feel good today."], ["That is good to hear!"]),
    (["Good night.", "Good night!"], ["Good night! Sleep well."]),
]

SYSTEM = ["You are a helpful assistant.", "Answer briefly.", "You are a friendly assistant.", "Be kind and clear."]
