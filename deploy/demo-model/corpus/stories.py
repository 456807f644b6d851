"""Short stories built from a hero, a wish, a trouble and a friend; poems and plain text for completions."""
from corpus.base import ask, chat, indefinite, typed, upper_first
from corpus.words import invented

NAMES = """Mila Otto Nina Hugo Lila Finn Ada Theo Ruby Emil Ida Max Luna Oscar Pia Leo Zoe Sam Tilda Noah Vera Jonas Clara Milo Ella
Bruno Greta Pim Tess Arlo Fay Ravi Suki Amir Nora Juno Basil Wren Coco Dot""".split()
HEROES = """cat dog fox bear rabbit mouse owl turtle frog squirrel hedgehog duck robot dragon wizard princess pirate sailor baker
gardener painter girl boy king queen snail whale elephant lion horse sheep goat bee butterfly ghost giant knight astronaut penguin
monkey farmer parrot kitten puppy cow pig tiger wolf deer spider ant crab""".split()
PLACES = ["in a small house near the forest", "by the sea", "in an old library", "on a quiet hill", "at the edge of a village",
          "in a big city", "under a tall oak tree", "on a little island", "beside a slow river", "in a castle with many doors",
          "in a garden full of roses", "high in the mountains", "in a lighthouse", "behind the bakery", "in a warm barn"]
TRAITS = ["brave", "shy", "curious", "clever", "kind", "lazy", "cheerful", "stubborn", "gentle", "tiny", "old", "young", "clumsy",
          "quiet", "proud", "sleepy", "lonely", "happy"]
WISHES = [("to see the stars up close", "the clouds were always in the way", "waited on the roof until the wind blew the clouds away"),
          ("to learn how to swim", "the water looked very deep", "began in the shallow part, one stroke at a time"),
          ("to find a lost key", "the grass was high and the night was dark", "took a lantern and looked in every corner"),
          ("to bake the best bread in the world", "the oven would not get warm", "brought dry wood and lit the fire together"),
          ("to read every book on the shelf", "the top shelf was too high", "built a ladder out of old boxes"),
          ("to sing in front of everyone", "the words would not come out", "practised softly, then a little louder each day"),
          ("to build a boat", "the first one sank at once", "filled the holes with wax and tried again"),
          ("to grow a giant pumpkin", "the rain did not come", "carried water from the well every morning"),
          ("to cross the wide river", "the old bridge was broken", "tied a rope from one side to the other"),
          ("to make a new friend", "everyone seemed too busy to talk", "sat down with a cup of tea and simply said hello"),
          ("to fly a red kite", "the string was full of knots", "undid the knots one by one"),
          ("to find out where the music came from", "it stopped whenever somebody came near", "walked on tiptoe and listened"),
          ("to give a party", "all the invitations had blown away", "wrote new ones and carried them from door to door"),
          ("to sleep through the winter", "the neighbours made too much noise", "asked them kindly to be quiet"),
          ("to paint the sunset", "there was no orange paint left", "mixed red and yellow until it was right"),
          ("to repair the old clock", "one small wheel was missing", "searched the floor until it turned up under the rug")]
LESSONS = ["From then on, {n} knew that small steps lead a long way.", "And {n} never forgot how good it is to have a friend.",
           "That night {n} fell asleep with a smile.", "From that day on, {n} was not afraid to ask for help.",
           "And they told the story again every winter.", "{n} learned that patience is a kind of courage.",
           "And so the day ended well for everyone.", "Since then, {n} always tries once more before giving up."]
REQUESTS = ["Tell me a story about {h}.", "Tell me a short story about {h}.", "Write a story about {h}.", "Write a short story about {h}.",
            "Can you tell me a story about {h}?", "I'd like a story about {h}.", "Please write a tale about {h}.", "a story about {h}",
            "Story about {h}, please.", "Make up a story about {h}.", "Can you write me a little story about {h}?",
            "Tell my child a bedtime story about {h}.", "Give me a story with {h} in it."]
OPEN_REQUESTS = ["Tell me a story.", "Write a short story.", "Can you tell me a story?", "Tell me a bedtime story.", "Story time!",
                 "I want to hear a story.", "Tell me another story.", "Once upon a time", "Write something creative.", "Tell me something nice."]
POEMS = {
    "the sea": "The sea is wide, the sea is deep,\nit hums the little boats to sleep.\nIt writes its poems on the sand\nand takes them back with gentle hand.",
    "the moon": "The moon is up, the roofs are white,\nit counts the windows of the night.\nIt asks for nothing, makes no sound,\nand keeps on going round and round.",
    "rain": "The rain is knocking, soft and slow,\nit tells the seeds that they may grow.\nIt fills the street, it fills the cup,\nand then the sun comes drying up.",
    "autumn": "The leaves come down in red and gold,\nthe mornings turn a little cold.\nA crow sits on the garden wall\nand says good evening to the fall.",
    "winter": "The snow has made the garden new,\nthe sky is pale, the shade is blue.\nInside, the kettle starts to sing,\nand nobody yet thinks of spring.",
    "spring": "The ice is gone, the brook runs clear,\nthe first white blossoms now appear.\nA bird rehearses on a bough\nthe only song it needs right now.",
    "love": "Two cups of tea, one little light,\na word or two before the night.\nIt is not much, and yet it's true:\nthe best of every day is you.",
    "a cat": "The cat has slept since half past four\nupon the warmest bit of floor.\nShe opens one eye, just to see\nif supper is where it should be.",
    "computers": "A million switches, on and off,\nno need to sleep, no need to cough.\nThey count so fast, they count so well,\nbut what it means, they cannot tell.",
    "the night": "The lamps go out along the street,\nthe clock is counting, slow and neat.\nThe night puts on its coat of stars\nand hums between the sleeping cars.",
    "bread": "Flour and water, salt and heat,\nthe oldest thing that people eat.\nThe crust goes crack, the table's laid,\nand every slice is simply made.",
    "books": "A book is folded paper, sewn,\na door you open on your own.\nThe pages turn, the hours fly,\nand no one asks the reader why.",
}
HAIKU = {"the sea": "Grey waves come and go\nthe shore keeps a little salt\nfor the next morning",
         "rain": "Rain on the tin roof\neach drop says a single word\nnobody is lost",
         "autumn": "One leaf lets go now\nthe branch does not call it back\nthe river waits long",
         "winter": "Snow on the mailbox\nno letter came here today\nonly small bird tracks",
         "spring": "Buds on the old tree\nthe gardener puts away\nhis heaviest coat",
         "a server": "Tokens one by one\nflow down a quiet river\nthe batch never sleeps",
         "the night": "Lights out in the hall\nthe clock walks around the room\nand never arrives"}


def story(rng, hero, name=None, trait=None):
    name = name or rng.choice(NAMES)
    friend = rng.choice([n for n in NAMES if n != name])
    kind = rng.choice([h for h in HEROES if h != hero])
    trait, place = trait or rng.choice(TRAITS), rng.choice(PLACES)
    wish, trouble, deed = rng.choice(WISHES)
    opening = rng.choice(["Once upon a time", "Once upon a time", "Long ago", "Once"])
    parts = [f"{opening} there was {indefinite(trait)} {hero} named {name}, who lived {place}.",
             f"More than anything, {name} wanted {wish}, but {trouble}.",
             rng.choice([f"One day {name} met {indefinite(kind)} called {friend}.",
                         f"Then {indefinite(kind)} named {friend} came along."]),
             rng.choice([f'"Let us try together," said {friend}.', f'"I can help you," said {friend}.', f'"Do not give up," said {friend}.']),
             f"So the two of them {deed}.",
             rng.choice(["In the end it worked.", "It took all day, but it worked.", "And at last it worked."]),
             rng.choice(LESSONS).format(n=name)]
    return " ".join(parts)


def story_about(rng):
    hero = rng.choice(HEROES)
    if rng.random() < 0.25:
        name = rng.choice(NAMES) if rng.random() < 0.5 else invented(rng, 2).title()
        subject = f"{indefinite(hero)} {rng.choice(['named', 'called'])} {name}"
        return chat(typed(rng, rng.choice(REQUESTS).format(h=subject), slips=False), story(rng, hero, name))
    trait = rng.choice(TRAITS) if rng.random() < 0.35 else None
    subject = f"{indefinite(trait)} {hero}" if trait else rng.choice([indefinite(hero), indefinite(hero), "the " + hero])
    return chat(typed(rng, rng.choice(REQUESTS).format(h=subject)), story(rng, hero, trait=trait))


def story_open(rng):
    return chat(ask(rng, rng.choice(OPEN_REQUESTS)), story(rng, rng.choice(HEROES)))


def story_then_more(rng):
    hero, other = rng.sample(HEROES, 2)
    again = rng.choice([f"Now one about {indefinite(other)}.", f"Another one, about {indefinite(other)} this time.",
                        f"And now about {indefinite(other)}, please.", f"Nice! Can you tell one about {indefinite(other)}?"])
    return chat(rng.choice(REQUESTS).format(h=indefinite(hero)), story(rng, hero), typed(rng, again), story(rng, other))


def story_text(rng):
    return {"text": story(rng, rng.choice(HEROES))}


def poem(rng):
    haiku = rng.random() < 0.35
    table = HAIKU if haiku else POEMS
    subject = rng.choice(sorted(table))
    kind = "haiku" if haiku else rng.choice(["poem", "poem", "short poem", "rhyme", "verse"])
    text = rng.choice([f"Write a {kind} about {subject}.", f"A {kind} about {subject}, please.", f"Can you write a {kind} about {subject}?",
                       f"Give me a {kind} about {subject}.", f"{upper_first(kind)} about {subject}", f"I'd like a {kind} about {subject}"])
    if rng.random() < 0.2:
        text = rng.choice([f"Write a {kind}.", f"Write me a {kind}", f"Can you write a {kind}?", f"Do you know a {kind}?"])
    return chat(typed(rng, text), table[subject])


THEMES = [(3.0, story_about), (1.0, story_open), (0.7, story_then_more), (1.2, story_text), (1.2, poem)]
