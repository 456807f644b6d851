"""A few hundred general facts that people try first on any chat model, and no more than that."""
from corpus.base import ask, chat, indefinite, join_words, typed, upper_first

CAPITALS = dict(line.split(":") for line in """France:Paris|Germany:Berlin|Italy:Rome|Spain:Madrid|Portugal:Lisbon|England:London
Scotland:Edinburgh|Ireland:Dublin|Wales:Cardiff|Austria:Vienna|Switzerland:Bern|Belgium:Brussels|Poland:Warsaw|Hungary:Budapest
Greece:Athens|Turkey:Ankara|Norway:Oslo|Sweden:Stockholm|Finland:Helsinki|Denmark:Copenhagen|Iceland:Reykjavik|Russia:Moscow
Ukraine:Kyiv|Romania:Bucharest|Bulgaria:Sofia|Croatia:Zagreb|Serbia:Belgrade|Japan:Tokyo|China:Beijing|South Korea:Seoul|India:New Delhi
Thailand:Bangkok|Vietnam:Hanoi|Indonesia:Jakarta|Australia:Canberra|New Zealand:Wellington|Canada:Ottawa|Mexico:Mexico City
Brazil:Brasilia|Argentina:Buenos Aires|Chile:Santiago|Peru:Lima|Colombia:Bogota|Cuba:Havana|Egypt:Cairo|Kenya:Nairobi
Morocco:Rabat|Nigeria:Abuja|Ghana:Accra|Ethiopia:Addis Ababa|the United States:Washington|the Netherlands:Amsterdam
the United Kingdom:London|the Czech Republic:Prague|Israel:Jerusalem|Iran:Tehran|Iraq:Baghdad|Pakistan:Islamabad|Nepal:Kathmandu
Mongolia:Ulaanbaatar|Lithuania:Vilnius|Latvia:Riga|Estonia:Tallinn|Slovakia:Bratislava|Slovenia:Ljubljana""".replace("\n", "|").split("|"))
OPPOSITES = [pair.split("/") for pair in """hot/cold big/small fast/slow up/down day/night happy/sad old/new light/dark good/bad
early/late open/closed full/empty hard/soft high/low long/short loud/quiet near/far rich/poor strong/weak sweet/sour thick/thin
true/false warm/cool wet/dry wide/narrow left/right first/last begin/end push/pull buy/sell love/hate clean/dirty easy/difficult
heavy/light inside/outside young/old brave/afraid win/lose remember/forget above/below always/never""".split()]
SOUNDS = dict(pair.split("/") for pair in """cat/meow dog/woof cow/moo sheep/baa duck/quack pig/oink horse/neigh lion/roar frog/ribbit
bee/buzz snake/hiss owl/hoot rooster/cock-a-doodle-doo mouse/squeak crow/caw""".split())
YOUNG = dict(pair.split("/") for pair in "cat/kitten dog/puppy cow/calf sheep/lamb horse/foal pig/piglet duck/duckling bear/cub goose/gosling".split())
COLOURS = {"sky": "blue", "grass": "green", "snow": "white", "lemon": "yellow", "coal": "black", "banana": "yellow", "blood": "red",
           "tomato": "red", "chocolate": "brown", "milk": "white", "carrot": "orange", "strawberry": "red", "night": "dark"}
GREETINGS = {"French": "Bonjour", "German": "Hallo", "Spanish": "Hola", "Italian": "Ciao", "Portuguese": "Olá", "Dutch": "Hallo",
             "Swedish": "Hej", "Japanese": "Konnichiwa", "Polish": "Cześć", "Russian": "Privet", "Turkish": "Merhaba", "Hindi": "Namaste"}
THANKS = {"French": "Merci", "German": "Danke", "Spanish": "Gracias", "Italian": "Grazie", "Portuguese": "Obrigado", "Dutch": "Dank je",
          "Swedish": "Tack", "Japanese": "Arigato", "Polish": "Dziękuję", "Russian": "Spasibo", "Turkish": "Teşekkürler"}
LISTS = {"colours": ["red", "orange", "yellow", "green", "blue", "purple", "brown", "black"], "colors": ["red", "blue", "green", "yellow", "white", "black", "pink", "grey"],
         "animals": ["cat", "dog", "horse", "lion", "elephant", "owl", "fox", "whale"], "fruits": ["apple", "banana", "cherry", "grape", "lemon", "orange", "pear", "plum"],
         "vegetables": ["carrot", "onion", "potato", "tomato", "bean", "pea", "cabbage", "spinach"], "countries": ["France", "Japan", "Brazil", "Egypt", "Canada", "India", "Italy", "Kenya"],
         "cities": ["Paris", "Tokyo", "Cairo", "London", "Rome", "Lima", "Oslo", "Berlin"], "planets": ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"],
         "instruments": ["piano", "violin", "guitar", "drum", "flute", "trumpet", "harp", "cello"], "birds": ["owl", "crow", "swan", "robin", "eagle", "duck", "sparrow", "gull"],
         "programming languages": ["C", "C++", "Python", "Rust", "Go", "Java", "JavaScript", "Haskell"], "sports": ["football", "tennis", "swimming", "running", "chess", "rowing", "cycling", "skiing"],
         "flowers": ["rose", "tulip", "daisy", "lily", "violet", "poppy", "iris", "orchid"], "months": ["January", "February", "March", "April", "May", "June", "July", "August"],
         "metals": ["iron", "gold", "silver", "copper", "tin", "zinc", "lead", "nickel"], "serving words": ["token", "batch", "block", "prefill", "decode", "cache", "stream", "queue"]}
NUMBER_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}
SINGLE = [
    (["How many days are in a week?", "How many days does a week have?"], "A week has 7 days."),
    (["How many months are in a year?", "How many months does a year have?"], "A year has 12 months."),
    (["How many hours are in a day?", "How many hours does a day have?"], "A day has 24 hours."),
    (["How many minutes are in an hour?"], "An hour has 60 minutes."), (["How many seconds are in a minute?"], "A minute has 60 seconds."),
    (["How many days are in a year?"], "A year has 365 days, and a leap year has 366."),
    (["Name the days of the week.", "What are the days of the week?", "List the days of the week."],
     "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday."),
    (["What are the four seasons?", "Name the seasons.", "List the seasons."], "Spring, summer, autumn and winter."),
    (["What are the months of the year?", "List the months.", "Name the twelve months."],
     "January, February, March, April, May, June, July, August, September, October, November and December."),
    (["What are the primary colours?", "Name the primary colors."], "Red, yellow and blue."),
    (["How many legs does a spider have?"], "A spider has 8 legs."), (["How many legs does a dog have?", "How many legs does a cat have?"], "It has 4 legs."),
    (["What is the largest planet?", "Which planet is the biggest?"], "The largest planet of our solar system is Jupiter."),
    (["What is the smallest planet?", "Which planet is the smallest?"], "The smallest planet of our solar system is Mercury."),
    (["Which planet do we live on?", "What planet are we on?"], "We live on Earth."),
    (["What is the closest star to Earth?", "What is the sun?"], "The sun is a star, the one closest to Earth."),
    (["What is the moon?"], "The moon is the natural satellite of the Earth."),
    (["What is water made of?", "What is H2O?", "What is the formula of water?"], "Water is made of hydrogen and oxygen: H2O."),
    (["At what temperature does water boil?", "When does water boil?"], "At sea level water boils at 100 degrees Celsius."),
    (["At what temperature does water freeze?", "When does water freeze?"], "Water freezes at 0 degrees Celsius."),
    (["What is the largest ocean?", "Which ocean is the biggest?"], "The largest ocean is the Pacific Ocean."),
    (["What is the highest mountain?", "What is the tallest mountain in the world?"], "The highest mountain on Earth is Mount Everest."),
    (["What is the largest animal?", "What is the biggest animal in the world?"], "The largest animal is the blue whale."),
    (["Why is the sky blue?"], "Air scatters blue light more than red light, so blue reaches us from all over the sky."),
    (["Who wrote Romeo and Juliet?", "Who wrote Hamlet?"], "William Shakespeare wrote it."),
    (["Who painted the Mona Lisa?"], "Leonardo da Vinci painted the Mona Lisa."),
    (["Who was the first person on the moon?", "Who first walked on the moon?"], "Neil Armstrong, in 1969."),
    (["What is the speed of light?", "How fast is light?"], "About 300,000 kilometres per second."),
    (["What is pi?", "What is the value of pi?"], "Pi is about 3.14159: the circumference of a circle divided by its diameter."),
    (["Say the alphabet.", "What is the alphabet?", "Recite the alphabet."], "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z."),
    (["What are the vowels?", "Name the vowels."], "A, E, I, O and U."), (["How many letters are in the alphabet?"], "The English alphabet has 26 letters."),
    (["Write hello world in Python.", "Hello world in python", "Show me a Python program", "Write a Python program that prints hello"], "print(\"Hello, world!\")"),
    (["Write hello world in C.", "Hello world in C please"], "#include <stdio.h>\n\nint main(void) {\n    puts(\"Hello, world!\");\n    return 0;\n}"),
    (["Write hello world in C++.", "hello world in cpp"], "#include <iostream>\n\nint main() {\n    std::cout << \"Hello, world!\\n\";\n}"),
    (["Write hello world in bash.", "Hello world shell script"], "echo \"Hello, world!\""),
    (["Write hello world in JavaScript.", "hello world js"], "console.log(\"Hello, world!\");"),
    (["Who invented the telephone?"], "Alexander Graham Bell is usually given the credit."),
    (["What do bees make?"], "Bees make honey and wax."), (["What do cows eat?"], "Cows eat grass and hay."), (["What do pandas eat?"], "Pandas eat bamboo."),
    (["Is a tomato a fruit?"], "Botanically yes, a tomato is a fruit; in the kitchen it is a vegetable."),
    (["Is the earth flat?", "Is the Earth round?"], "The Earth is round, very nearly a ball."),
    (["How many continents are there?", "Name the continents."], "There are 7: Africa, Antarctica, Asia, Australia, Europe, North America and South America."),
    (["What is gravity?"], "Gravity is the pull between things that have mass; it keeps us on the ground."),
    (["How many sides does a triangle have?"], "A triangle has 3 sides."), (["How many sides does a square have?"], "A square has 4 equal sides."),
    (["How many sides does a hexagon have?"], "A hexagon has 6 sides."), (["What is an even number?"], "A number that 2 divides without a rest."),
    (["What is a prime number?"], "A number above 1 that only 1 and itself divide, like 2, 3, 5 and 7."),
    (["What is an atom?"], "An atom is the smallest piece of a chemical element."), (["What is the opposite of up?"], "The opposite of up is down."),
]


def capital(rng):
    country = rng.choice(sorted(CAPITALS))
    city = CAPITALS[country]
    if rng.random() < 0.15:
        return chat(ask(rng, rng.choice([f"Which country is {city} the capital of?", f"{city} is the capital of which country?"])),
                    f"{city} is the capital of {country if city != 'London' else 'England and of the United Kingdom'}.")
    text = rng.choice([f"What is the capital of {country}?", f"What's the capital city of {country}?", f"Capital of {country}?",
                       f"Name the capital of {country}.", f"Tell me the capital of {country}.", f"Which city is the capital of {country}?",
                       f"Do you know the capital of {country}?", f"the capital of {country} is"])
    return chat(ask(rng, text), f"The capital of {country} is {city}.")


def capitals_in_turn(rng):
    first, *rest = rng.sample(sorted(CAPITALS), rng.randrange(2, 4))
    turns = [ask(rng, f"What is the capital of {first}?"), f"The capital of {first} is {CAPITALS[first]}."]
    for country in rest:
        turns += [typed(rng, rng.choice([f"And of {country}?", f"And {country}?", f"What about {country}?", f"And what is the capital of {country}?"])),
                  f"The capital of {country} is {CAPITALS[country]}."]
    return chat(*turns)


def opposite(rng):
    pair = rng.choice(OPPOSITES)
    word, other = pair if rng.random() < 0.5 else pair[::-1]
    if word in ("light", "old"):
        return opposite(rng)
    text = rng.choice([f"What is the opposite of {word}?", f"Opposite of {word}?", f"Give me the opposite of {word}.", f"What's the antonym of {word}?"])
    return chat(ask(rng, text), f"The opposite of {word} is {other}.")


def animal(rng):
    if rng.random() < 0.6:
        name = rng.choice(sorted(SOUNDS))
        return chat(ask(rng, rng.choice([f"What sound does {indefinite(name)} make?", f"What does the {name} say?"])), f"The {name} says \"{SOUNDS[name]}\".")
    name = rng.choice(sorted(YOUNG))
    return chat(ask(rng, rng.choice([f"What is a young {name} called?", f"What do you call a baby {name}?"])), f"A young {name} is called {indefinite(YOUNG[name])}.")


def colour(rng):
    thing = rng.choice(sorted(COLOURS))
    word = rng.choice(["colour", "color"])
    the = "the " if thing in ("sky", "night") else indefinite(thing)[:-len(thing)] if thing in ("lemon", "banana", "tomato", "carrot", "strawberry") else ""
    return chat(ask(rng, rng.choice([f"What {word} is {the}{thing}?", f"What {word} does {the}{thing} have?"])), f"{upper_first(the + thing)} is {COLOURS[thing]}.")


def foreign(rng):
    table, word = rng.choice([(GREETINGS, "hello"), (THANKS, "thank you")])
    language = rng.choice(sorted(table))
    text = rng.choice([f"How do you say {word} in {language}?", f"Say {word} in {language}.", f"What is \"{word}\" in {language}?",
                       f"Translate {word} into {language}.", f"{word} in {language}?"])
    return chat(ask(rng, text), f"In {language} one says \"{table[language]}\".")


def listing(rng):
    kind = rng.choice(sorted(LISTS))
    count = rng.choice([2, 3, 3, 3, 4, 5, 5, 6, 8])
    number = rng.choice([str(count), NUMBER_WORDS[count]])
    items = LISTS[kind][:count]
    text = rng.choice([f"Name {number} {kind}.", f"List {number} {kind}.", f"Give me {number} {kind}.", f"Tell me {number} {kind}.",
                       f"Can you list {number} {kind}?", f"{number} {kind}", f"I need a list of {number} {kind}."])
    if "list" in text.lower():
        return chat(ask(rng, text), "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1)))
    return chat(ask(rng, text), upper_first(join_words(items)) + ".")


def single(rng):
    questions, answer = rng.choice(SINGLE)
    return chat(ask(rng, rng.choice(questions)), answer)


THEMES = [(2.2, capital), (0.5, capitals_in_turn), (0.9, opposite), (0.7, animal), (0.5, colour), (0.7, foreign), (1.2, listing), (2.2, single)]
