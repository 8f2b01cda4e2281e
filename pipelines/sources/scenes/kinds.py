"""The kinds of object: what they are called, how they look at most, and where they may stand."""

from __future__ import annotations

from dataclasses import dataclass

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 48, 49),
    "orange": (240, 138, 36),
    "yellow": (247, 210, 62),
    "green": (66, 158, 72),
    "blue": (48, 108, 212),
    "purple": (140, 76, 190),
    "pink": (243, 144, 184),
    "brown": (140, 90, 50),
    "black": (46, 46, 52),
    "white": (247, 247, 243),
    "gray": (150, 152, 158),
}
SIZES = ("small", "large")
ANY = "red 5 blue 4 white 3 black 3 green 2 yellow 2 gray 1 orange 1"
BRIGHT = "red 5 yellow 4 blue 4 pink 2 green 2 orange 2 purple 2"
CLOTHES = "blue 5 red 4 white 3 green 2 yellow 2 black 2 purple 1 pink 1 orange 1"
WOOD = "brown 5 white 2 black 1 gray 1 red 1"

Names = tuple[tuple[str, str], ...]  # (singular, plural), the usual word first


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """One kind of object. `height` is a share of the picture's side, `aspect` is width over height."""

    name: str
    group: str  # nearest relatives: "pet"
    family: str  # "animal"
    names: Names
    colours: dict[str, float]
    height: float
    aspect: float
    place: str = "ground"  # ground, water, air or wall
    far: bool = False  # stands near the horizon
    most: int = 1  # of the kind in one picture
    doing: str = ""  # participle that fits the drawing
    seat: float | None = None  # others may sit on it, at this share of its height from the top
    rests: bool = False  # may stand on a seat
    needs_seat: bool = False  # looks wrong on the floor
    held: bool = False  # may be in a person's hand
    ridden: bool = False  # a person may sit on it


def parse_names(text: str) -> Names:
    """Read "dog/dogs, puppy/puppies"."""
    pairs = [pair.strip().split("/") for pair in text.split(",")]
    return tuple((one, many) for one, many in pairs)


def _colours(text: str) -> dict[str, float]:
    words = text.split()
    weights = {name: float(weight) for name, weight in zip(words[::2], words[1::2], strict=True)}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def _k(
    name: str, group: str, family: str, names: str, colours: str, height: float, aspect: float, **more: object
) -> ObjectKind:
    return ObjectKind(name, group, family, parse_names(names), _colours(colours), height, aspect, **more)  # type: ignore[arg-type]


_ALL = (
    # animals
    _k("dog", "pet", "animal", "dog/dogs, puppy/puppies, hound/hounds, doggy/doggies",
       "brown 5 black 3 white 3 gray 1", 0.25, 0.85, most=3, doing="sitting", rests=True),
    _k("cat", "pet", "animal", "cat/cats, kitten/kittens, kitty/kitties",
       "black 4 orange 4 white 3 gray 3", 0.22, 0.80, most=3, doing="sitting", rests=True),
    _k("rabbit", "pet", "animal", "rabbit/rabbits, bunny/bunnies, hare/hares",
       "white 4 gray 3 brown 3", 0.19, 0.80, most=3, doing="sitting"),
    _k("cow", "farm animal", "animal", "cow/cows, bull/bulls, heifer/heifers",
       "white 4 brown 4 black 2", 0.28, 1.45, most=4, doing="standing"),
    _k("horse", "farm animal", "animal", "horse/horses, pony/ponies, steed/steeds",
       "brown 5 white 2 black 3 gray 1", 0.36, 1.15, most=3, doing="standing", seat=0.42, ridden=True),
    _k("sheep", "farm animal", "animal", "sheep/sheep, lamb/lambs",
       "white 7 black 2 gray 1", 0.22, 1.30, most=4, doing="standing"),
    _k("elephant", "wild animal", "animal", "elephant/elephants",
       "gray 6 brown 1 pink 1", 0.38, 1.30, most=2, doing="standing", seat=0.18, ridden=True),
    _k("bird", "fowl", "animal", "bird/birds, songbird/songbirds, finch/finches",
       "blue 4 red 3 yellow 3 black 2 white 1", 0.15, 1.20, most=4, doing="standing", rests=True),
    _k("duck", "fowl", "animal", "duck/ducks, duckling/ducklings, mallard/mallards",
       "yellow 5 white 4 brown 2", 0.15, 1.25, place="water", most=4, doing="swimming"),
    _k("fish", "fish", "animal", "fish/fish, goldfish/goldfish",
       "orange 5 red 2 blue 2 yellow 2", 0.11, 1.90, place="water", most=4, doing="swimming"),
    _k("butterfly", "insect", "animal", "butterfly/butterflies, moth/moths",
       "orange 4 blue 3 yellow 2 purple 2 pink 1", 0.13, 1.20, place="air", most=3, doing="flying"),
    # people: the colour is that of the clothes
    _k("man", "adult", "person", "man/men, guy/guys, gentleman/gentlemen",
       CLOTHES, 0.44, 0.48, most=2, doing="standing"),
    _k("woman", "adult", "person", "woman/women, lady/ladies",
       CLOTHES, 0.42, 0.50, most=2, doing="standing"),
    _k("boy", "child", "person", "boy/boys, lad/lads", CLOTHES, 0.31, 0.56, most=3, doing="standing"),
    _k("girl", "child", "person", "girl/girls, lass/lasses", CLOTHES, 0.31, 0.58, most=3, doing="standing"),
    # vehicles
    _k("car", "road vehicle", "vehicle", "car/cars, automobile/automobiles, sedan/sedans",
       ANY, 0.20, 2.00, most=3, doing="parked"),
    _k("bus", "road vehicle", "vehicle", "bus/buses, coach/coaches",
       "red 4 yellow 4 blue 2 white 1 green 1", 0.28, 1.75, most=2, doing="waiting"),
    _k("truck", "road vehicle", "vehicle", "truck/trucks, lorry/lorries",
       ANY, 0.27, 1.75, most=2, doing="parked"),
    _k("bicycle", "cycle", "vehicle", "bicycle/bicycles, bike/bikes, cycle/cycles",
       BRIGHT + " black 3", 0.24, 1.60, most=2, seat=0.25, ridden=True),
    _k("boat", "watercraft", "vehicle", "boat/boats, sailboat/sailboats, yacht/yachts",
       "white 4 red 3 blue 3 brown 2 yellow 1", 0.30, 0.90, place="water", most=3, doing="floating"),
    _k("airplane", "aircraft", "vehicle", "airplane/airplanes, plane/planes, jet/jets",
       "white 5 red 2 blue 2 gray 2 yellow 1", 0.15, 2.30, place="air", doing="flying"),
    # furniture
    _k("chair", "seat", "furniture", "chair/chairs, stool/stools",
       WOOD + " blue 1", 0.30, 0.62, most=3, seat=0.56),
    _k("sofa", "seat", "furniture", "sofa/sofas, couch/couches, settee/settees",
       "red 3 blue 3 gray 3 green 2 brown 2", 0.27, 2.00, seat=0.58),
    _k("bench", "seat", "furniture", "bench/benches", "brown 5 green 2 gray 2", 0.20, 1.80, most=2, seat=0.48),
    _k("table", "table", "furniture", "table/tables, desk/desks", WOOD, 0.24, 1.75, seat=0.07),
    _k("bed", "bed", "furniture", "bed/beds", "blue 3 white 2 red 2 pink 1 purple 1", 0.26, 1.95, seat=0.52),
    # household
    _k("lamp", "lamp", "household", "lamp/lamps, table lamp/table lamps",
       "yellow 4 red 2 white 2 blue 1 green 1", 0.22, 0.62, most=2, rests=True),
    _k("clock", "clock", "household", "clock/clocks, timepiece/timepieces",
       "white 3 red 2 brown 2 blue 1 black 1", 0.16, 1.00, place="wall", doing="hanging"),
    _k("cup", "tableware", "household", "cup/cups, mug/mugs",
       "white 4 red 3 blue 3 yellow 1 green 1", 0.11, 1.20, most=3, rests=True, needs_seat=True),
    _k("umbrella", "umbrella", "household", "umbrella/umbrellas, parasol/parasols, sunshade/sunshades",
       BRIGHT + " black 2", 0.30, 1.05, most=2, doing="standing", held=True),
    # food
    _k("apple", "fruit", "food", "apple/apples", "red 6 green 4 yellow 2", 0.10, 0.92, most=4, rests=True,
       needs_seat=True),
    _k("banana", "fruit", "food", "banana/bananas", "yellow 7 green 2", 0.09, 1.90, most=2, rests=True,
       needs_seat=True),
    _k("cake", "pastry", "food", "cake/cakes, birthday cake/birthday cakes",
       "pink 4 white 3 brown 3 yellow 1", 0.16, 1.05, rests=True, needs_seat=True),
    # toys
    _k("ball", "ball", "toy", "ball/balls, beach ball/beach balls", BRIGHT, 0.13, 1.00, most=3, doing="lying"),
    _k("kite", "flyer", "toy", "kite/kites", BRIGHT, 0.26, 0.70, place="air", most=2, doing="flying", held=True),
    _k("balloon", "flyer", "toy", "balloon/balloons", BRIGHT, 0.24, 0.52, place="air", most=4, doing="floating",
       held=True),
    _k("teddy bear", "doll", "toy", "teddy bear/teddy bears, stuffed bear/stuffed bears, teddy/teddies",
       "brown 6 white 2 pink 2", 0.20, 0.82, most=2, doing="sitting", rests=True),
    _k("snowman", "doll", "toy", "snowman/snowmen", "white 1", 0.34, 0.68, most=2, doing="standing"),
    # plants
    _k("tree", "tall plant", "plant", "tree/trees, oak/oaks",
       "green 6 orange 2 yellow 1 red 1", 0.46, 0.74, far=True, most=4, doing="growing"),
    _k("pine", "tall plant", "plant", "pine/pines, fir/firs, pine tree/pine trees",
       "green 6 white 1 blue 1", 0.46, 0.58, far=True, most=4, doing="growing"),
    _k("flower", "low plant", "plant", "flower/flowers, blossom/blossoms, tulip/tulips",
       "red 4 yellow 4 pink 3 purple 2 white 2 blue 1", 0.19, 0.55, most=4, doing="growing", held=True),
    _k("cactus", "low plant", "plant", "cactus/cacti", "green 1", 0.34, 0.68, most=3, doing="growing"),
    # buildings
    _k("house", "building", "building", "house/houses, cottage/cottages, home/homes",
       "white 3 red 3 yellow 3 blue 2 brown 2 pink 1", 0.40, 1.08, far=True, most=2, doing="standing"),
    _k("tower", "building", "building", "tower/towers, skyscraper/skyscrapers, high-rise/high-rises",
       "gray 4 blue 3 brown 2 white 1", 0.58, 0.42, far=True, most=4, doing="standing"),
    _k("tent", "building", "building", "tent/tents", "orange 4 green 3 blue 3 red 2 yellow 1", 0.28, 1.35,
       most=2, doing="pitched"),
    # sky
    _k("sun", "light", "sky", "sun/suns", "yellow 6 orange 3 red 1", 0.19, 1.00, place="air", doing="shining"),
    _k("moon", "light", "sky", "moon/moons, crescent/crescents", "yellow 3 white 3 orange 1", 0.17, 0.80,
       place="air", doing="shining"),
    _k("cloud", "cloud", "sky", "cloud/clouds", "white 6 gray 3 pink 1", 0.14, 1.90, place="air", most=3,
       doing="floating"),
)  # fmt: skip
KINDS: dict[str, ObjectKind] = {kind.name: kind for kind in _ALL}

# Words for a group or a family that people use instead of the kind.
HYPERNYMS: dict[str, Names] = {
    "pet": parse_names("pet/pets"),
    "farm animal": parse_names("farm animal/farm animals"),
    "animal": parse_names("animal/animals, creature/creatures"),
    "adult": parse_names("adult/adults, grown-up/grown-ups"),
    "child": parse_names("child/children, kid/kids"),
    "person": parse_names("person/people, human/humans"),
    "vehicle": parse_names("vehicle/vehicles"),
    "furniture": parse_names("piece of furniture/pieces of furniture"),
    "fruit": parse_names("fruit/fruits, piece of fruit/pieces of fruit"),
    "food": parse_names("snack/snacks"),
    "toy": parse_names("toy/toys, plaything/playthings"),
    "plant": parse_names("plant/plants"),
    "building": parse_names("building/buildings"),
}
CONCEPTS = (*KINDS, *HYPERNYMS)  # what a caption's noun may mean


def is_a(kind: str, concept: str) -> bool:
    """Whether every object of `kind` is also a `concept` (a kind or a hypernym)."""
    return concept in (kind, KINDS[kind].group, KINDS[kind].family)
