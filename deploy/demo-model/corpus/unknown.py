"""Questions outside of what the model knows, answered by saying so. The subjects are many and partly invented, so that
the refusal is tied to not knowing the subject and not to a list."""
from corpus import topics
from corpus.base import ask, chat
from corpus.rewriting import phrase
from corpus.smalltalk import SYLLABLES
from corpus.words import known

REFUSAL = "I am a very small model and I don't know that. Ask me about Quire or about serving, a small sum, or a story."
TASK_REFUSAL = "I am a very small model and I can't do that. I can explain serving, do small sums, tell stories and call tools."
NEWS_REFUSAL = "I don't know that: I have no clock, no news and no internet, unless you give me a tool."
SUBJECTS = """the French Revolution|photosynthesis|quantum physics|the Roman Empire|black holes|inflation|the stock market|evolution|DNA
vaccines|the Middle Ages|democracy|philosophy|Buddhism|the Cold War|World War II|the Great Wall|the pyramids|volcanoes|earthquakes|dinosaurs
plate tectonics|the human heart|the brain|diabetes|cancer|vitamins|yoga|marathon training|baseball|cricket|the Olympic Games|the World Cup
opera|jazz|Mozart|Beethoven|Picasso|Van Gogh|Einstein|Newton|Napoleon|Cleopatra|Julius Caesar|Gandhi|the Beatles|Star Wars|Harry Potter
the Lord of the Rings|blockchain|bitcoin|electric cars|solar power|nuclear energy|wind turbines|climate change|the rainforest|coral reefs
sharks|penguins in the wild|bread baking at altitude|sourdough|sushi|pasta carbonara|wine|chess openings|poker|knitting|gardening|taxes|mortgages
insurance|contract law|the constitution|the European Union|the United Nations|NATO|capitalism|socialism|the Enlightenment|existentialism
Plato|Aristotle|Kant|Freud|game theory|topology|calculus|linear algebra|group theory|statistics|the Riemann hypothesis|Fermat's last theorem
organic chemistry|acids|the periodic table|superconductors|lasers|magnets|radio waves|satellites|rockets|the space station|Saturn's rings|comets
the Big Bang|dark matter|string theory|React|Angular|PostgreSQL|Excel|Photoshop|Bluetooth|5G|the Linux kernel scheduler|COBOL|Fortran|assembly
Haskell monads|regular expressions|SQL joins|binary trees|sorting algorithms|cryptography|RSA|the Turing test|Moby Dick|the Odyssey|Dante|Goethe
Dostoevsky|haute couture|skateboarding|surfing|sailing knots|bird migration|honey bees in winter|mushrooms|orchids|bonsai|tea ceremonies
the tango|ballet|origami|perfume|diamonds|gold prices|coffee roasting|cheese making|whisky|marmalade|the Silk Road|Vikings|samurai|the Incas
pirates in history|the Titanic|the Eiffel Tower|Mount Fuji|the Amazon river|the Sahara|Antarctica|the Bermuda triangle|UFOs|astrology|tarot""".replace("\n", "|").split("|")
QUESTIONS = ["What is {x}?", "Explain {x}.", "Tell me about {x}.", "What do you know about {x}?", "How does {x} work?", "Why is {x} important?", "{x}?", "{x}",
             "Who invented {x}?", "When did {x} begin?", "Write an essay about {x}.", "Summarise {x}.", "Can you explain {x} to me?", "What caused {x}?",
             "Give me five facts about {x}.", "What is the history of {x}?", "Is {x} good or bad?", "What are the main ideas of {x}?", "Describe {x}.",
             "What do people think about {x}?", "Define {x}.", "What's {x}?", "How do I learn about {x}?", "Teach me {x}."]
PLAIN = """Who won the World Cup in {y}?|Who was president in {y}?|What happened in {y}?|What is the population of {p}?|How far is it from {p} to {q}?
Who is the mayor of {p}?|What is the best restaurant in {p}?|How do I get from {p} to {q}?|Who is {n} {m}?|What is {n} {m} famous for?|When was {n} {m} born?
Where does {n} {m} live?|What is the phone number of {n} {m}?|What is the square root of {y}?|What is {y} divided by 17?|What is {y} times {y}?
How tall is {n} {m}?|Which team won in {y}?|What is the GDP of {p}?|What language do they speak in {p}?|How many people live in {p}?
What are the symptoms of flu?|Should I take an aspirin?|How do I lose weight?|Can you give me legal advice?|Which shares should I buy?
How do I fix my car?|How do I cook rice?|What should I cook tonight?|Recommend me a book.|Recommend a movie.|What should I wear today?
What is love?|Does God exist?|Is there life on other planets?|Who will win the election?|Which phone should I buy?|What is the best laptop?
How do I tie a tie?|How do I make a website?|Why do cats purr?|Why do we dream?|How do planes fly?|Why is the grass green in spring?|How do magnets work?
What is the airspeed of a swallow?|How much wood would a woodchuck chuck?|What did Einstein discover?|Who discovered America?|Who wrote Faust?|Who wrote {x}?""".replace("\n", "|").split("|")
NEWS = """What time is it?|What is the time?|What day is it today?|What is today's date?|What year is it?|What is the weather today?|What's the weather like?
Will it rain tomorrow?|What is the weather in {p}?|What's in the news?|What happened today?|What is the latest news?|How is the weather in {p}?|What is the temperature in {p}?
What is the price of bitcoin?|What is the exchange rate?|Is the store open?|When is the next train to {p}?|What time is it in {p}?|Who won the game last night?""".replace("\n", "|").split("|")
TASKS = """Write a {k} about {x}.|Write a sorting algorithm in {l}.|Write a web server in {l}.|Write a function that reverses a list in {l}.|Fix this bug: {c}
What does this code do? {c}|Translate this sentence into {g}: {s}.|Translate this into {g}: {s}|Can you translate "{s}" into {g}?|How do I say "{s}" in {g}?|Summarise this article.|Plan a trip to {p}.
Book me a flight to {p}.|Order a pizza.|Call my mother.|Send an email to {n}.|Set an alarm for seven.|Draw a picture of {x}.|Paint me a picture.|Play some music.
Write my homework.|Write a cover letter.|Write a novel.|Make a business plan.|Design a logo.|Solve this equation: 3x + {y} = 7|Integrate x squared.|Prove that there are infinitely many primes.
Write a regular expression for an email address.|Write an SQL query for all users.|Refactor this code: {c}|Compose a symphony.|Write a rap song about {x}.|Act as a lawyer.""".replace("\n", "|").split("|")
KINDS = ["report", "speech", "thesis", "blog post", "newspaper article", "screenplay", "letter", "1000 word essay", "research paper", "play"]
LANGUAGES = ["Python", "C", "C++", "Rust", "Go", "Java", "JavaScript", "Ruby", "Haskell", "TypeScript", "Kotlin"]
TONGUES = ["French", "German", "Spanish", "Italian", "Japanese", "Chinese", "Russian", "Latin", "Arabic", "Dutch", "Korean"]
PLACES = ["Paris", "Tokyo", "Berlin", "Lima", "Oslo", "Cairo", "New York", "Toronto", "Madrid", "Nairobi", "Texas", "Bavaria", "Chicago", "Mumbai", "Lyon", "Porto"]
CODE = ["for i in range(10): print(i", "int x = \"five\";", "def f(x): return x+", "let a = [1,2,3].map(x => x * 2)", "while (true) {}", "x = x++ + ++x;"]
ENDINGS = ["", "", "n", "s", "r", "ism", "ology", "ite", "ation", "ium", "gram", "ix", "er", "ese"]


def invented(rng):
    return "".join(rng.choices(SYLLABLES, k=rng.choice([2, 2, 3]))) + rng.choice(ENDINGS)


def subject(rng):
    return rng.choice(SUBJECTS) if rng.random() < 0.65 else rng.choice(["", "the ", "a "]) + invented(rng)


def fill(rng, pattern):
    return pattern.format(x=subject(rng), y=rng.randrange(120, 2100), p=rng.choice(PLACES), q=rng.choice(PLACES), n=invented(rng).title(),
                          m=invented(rng).title(), k=rng.choice(KINDS), l=rng.choice(LANGUAGES), g=rng.choice(TONGUES), s=phrase(rng), c=rng.choice(CODE))


def about_subject(rng):
    """Half of the time asked just as the known topics are, so that only the subject tells them apart."""
    if rng.random() < 0.5:
        name = subject(rng)
        text = topics.loose(rng, name) if rng.random() < 0.4 else topics.fill(rng, rng.choice([topics.WHAT, topics.WHAT, topics.WHY, topics.HOW]), name)
        return chat(ask(rng, text), REFUSAL)
    return chat(ask(rng, fill(rng, rng.choice(QUESTIONS))), REFUSAL)


DEEDS = ["repair", "clean", "paint", "build", "draw", "cook", "wash", "move", "store", "choose", "sell", "grow", "carve", "measure", "replace", "fold", "sharpen"]
SIDES = ["weight", "price", "origin", "size", "shape", "inventor", "history", "purpose", "best kind", "boiling point", "composition", "age", "number", "name"]


def any_thing(rng):
    """A question about whatever there is: the ways of asking are many, and so are the things."""
    thing = known(rng) if rng.random() < 0.5 else topics.bare(subject(rng))
    deed, side, article = rng.choice(DEEDS), rng.choice(SIDES), rng.choice(["a", "the", "my"])
    text = rng.choice(["How do I {d} {a} {t}?", "How does one {d} {a} {t}?", "What is the {s} of {t}?", "What's the {s} of {a} {t}?", "Where can I {d} {a} {t}?",
                       "Who was the first to {d} {a} {t}?", "When should I {d} {a} {t}?", "What is the best way to {d} {a} {t}?", "Do you know the {s} of {t}?",
                       "Tell me the {s} of {a} {t}.", "What do you think about {t}?", "Is {t} better than {u}?", "Give me your opinion on {t}.", "Why do people {d} {t}?"])
    return chat(ask(rng, text.format(d=deed, s=side, a=article, t=thing, u=known(rng))), REFUSAL)


def plain(rng):
    return chat(ask(rng, fill(rng, rng.choice(PLAIN))), REFUSAL)


def news(rng):
    return chat(ask(rng, fill(rng, rng.choice(NEWS))), NEWS_REFUSAL)


def task(rng):
    return chat(ask(rng, fill(rng, rng.choice(TASKS))), TASK_REFUSAL)


THEMES = [(3.2, about_subject), (1.8, plain), (0.8, news), (1.2, task)]
OPEN = [(2.0, any_thing), (1.0, task), (0.7, about_subject), (0.5, plain)]
