"""Words to copy, spell, sort and count: common ones, and ones that exist in no dictionary, so that copying is learned and not a list."""

COMMON = """apple river stone cloud music garden window bridge candle forest silver planet market winter summer orange yellow purple
pencil mirror island castle rabbit turtle dragon bottle basket ticket letter number pocket button camera doctor farmer teacher sailor
table chair house street mountain ocean desert valley village city train plane boat bicycle paper book page quire block cache token
queue batch model server client stream thread kernel tensor memory disk flower tree leaf root branch seed grass rain snow wind storm
bread butter cheese honey sugar salt pepper lemon cherry grape banana carrot onion potato tomato tea coffee water milk juice bell
drum piano violin guitar song dance story poem word sentence friend mother father sister brother child king queen knight wizard ship
star moon sun sky night day morning evening hour minute clock key door wall floor roof lamp box bag coat shoe hat glove ring gold
iron copper glass wood wool silk cotton green blue red black white grey small large quick slow warm cold bright dark quiet loud happy
brave clever gentle kind wild young old new round flat deep high low soft hard sweet open hidden busy lucky simple little""".split()
MORE = """acorn anchor ankle arrow autumn bacon badge bakery ball bamboo barn beach bean bear beaver bench berry bird blanket blossom boot
bowl brick broom brush bubble bucket cabin cactus cake camel canal canoe cap carpet cart cat cave cellar chalk cheek chimney circle
clay cliff coal coin comb cookie coral corn corner cow crab cream crow crown cup curtain deer desk dish dog donkey dream duck dust eagle
ear earth egg elbow engine fabric falcon fan feather fence fern field finger fire fish flag flame flute foam fog fork fountain fox frog
fruit gate ghost giraffe goat goose grain gravel guest hammer harbor harp hawk hedge helmet hill hole hook horn horse hotel ice ink
jacket jar jewel kettle kite kitten knee knife ladder lake lamb lantern lawn lime lion lizard lock log lorry mango map maple marble mask
meadow mill mint mole monkey moss moth mouse mouth mud nail neck needle nest net nose nut oak oil olive otter oven owl paint palace palm
pan panda park parrot path peach pear pen piano pie pig pigeon pillow pilot pine pipe pizza plate plum pond pony pool puppy puzzle quilt
rail ramp raven ribbon rice road robin robot rocket rope rose ruler sack saddle sail sand scarf school screw seal shadow shark sheep
shelf shell shirt shore sink skirt sleeve snail soap sock sofa soup spider spoon spring square squirrel stair stamp station statue stool
straw string swan sword tail tent thorn throne thumb tiger toast tower toy trail trumpet tulip tunnel umbrella uncle valve vase vest
village wagon walnut wave wheat wheel whistle wing wolf worm yard zebra big calm clean crisp dry empty fair fast fine free full funny
good great heavy hungry long narrow neat pale plain proud sharp short shy sleepy smooth sour strong tall thick thin tidy tiny wet wide
wise one two three four five six seven eight nine ten eat drink walk run jump swim fly sing read write build paint find lose give take
bring carry open close see hear know like love want need make bake grow wait sleep""".split()
ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl kr l m n p pl pr qu r s sc sh sl sm sn sp st str sw t th tr tw v w wr y z".split()
VOWELS = "a a a e e e i i i o o o u u ai ea ee ia io oa oo ou y".split()
CODAS = ["", "", "", "", "n", "n", "r", "l", "s", "t", "m", "ck", "nd", "rt", "x", "p", "d", "ng", "lf", "st"]


def invented(rng, longest=3):
    """A word of one to three syllables that means nothing."""
    syllables = rng.randrange(1, longest + 1)
    return "".join(rng.choice(ONSETS if i or rng.random() < 0.8 else [""]) + rng.choice(VOWELS) + rng.choice(CODAS if i == syllables - 1 else CODAS[:8])
                   for i in range(syllables))


def known(rng):
    return rng.choice(COMMON) if rng.random() < 0.5 else rng.choice(MORE)


def known_sample(rng, count):
    """Different words."""
    words = []
    while len(words) < count:
        word = known(rng)
        if word not in words:
            words.append(word)
    return words


def word(rng):
    """A common word, or one time in four an invented one."""
    return known(rng) if rng.random() < 0.75 else invented(rng)
