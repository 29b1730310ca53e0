"""The German and English grammar compared with hand-written paradigms and sentences."""

from collections import Counter

import pytest

from s2s.data.phrasebook.clauses import (
    Clause,
    Nominal,
    english_clause,
    german_clause,
    infinitive_clause,
    name,
    noun_phrase,
    owned,
    possessed,
    pronoun,
)
from s2s.data.phrasebook.german import imperative, relative_pronoun, unmarked
from s2s.data.phrasebook.lexicon import Adjective, Adverb, Noun, Verb, all_adjectives, all_nouns, nouns, verbs
from s2s.data.phrasebook.patterns import command

# --- paradigms, written out by hand: nominative, accusative, dative, genitive


def bare(found):
    """What is said, without the marks of cases: a text, or several and numbers beside them."""
    if isinstance(found, str):
        return unmarked(found)
    return tuple(bare(part) for part in found) if isinstance(found, tuple) else found


def noun(english: str) -> Noun:
    (found,) = nouns(english)
    return found


def adjective(english: str) -> Adjective:
    return next(one for one in all_adjectives() if one.english[0] == english)


PARADIGMS = {
    ("the", "man", False): "der alte Mann|den alten Mann|dem alten Mann|des alten Mannes",
    ("the", "house", False): "das alte Haus|das alte Haus|dem alten Haus|des alten Hauses",
    ("the", "woman", False): "die alte Frau|die alte Frau|der alten Frau|der alten Frau",
    ("the", "child", True): "die alten Kinder|die alten Kinder|den alten Kindern|der alten Kinder",
    ("a", "man", False): "ein alter Mann|einen alten Mann|einem alten Mann|eines alten Mannes",
    ("a", "house", False): "ein altes Haus|ein altes Haus|einem alten Haus|eines alten Hauses",
    ("a", "woman", False): "eine alte Frau|eine alte Frau|einer alten Frau|einer alten Frau",
    ("a", "house", True): "alte Häuser|alte Häuser|alten Häusern|alter Häuser",
    ("my", "man", False): "mein alter Mann|meinen alten Mann|meinem alten Mann|meines alten Mannes",
    ("our", "woman", False): "unsere alte Frau|unsere alte Frau|unserer alten Frau|unserer alten Frau",
    ("his", "car", True): "seine alten Autos|seine alten Autos|seinen alten Autos|seiner alten Autos",
    ("not a", "dog", False): "kein alter Hund|keinen alten Hund|keinem alten Hund|keines alten Hundes",
    ("no", "woman", True): "keine alten Frauen|keine alten Frauen|keinen alten Frauen|keiner alten Frauen",
    ("this", "book", False): "dieses alte Buch|dieses alte Buch|diesem alten Buch|dieses alten Buches",
    ("this", "boy", False): "dieser alte Junge|diesen alten Jungen|diesem alten Jungen|dieses alten Jungen",
    ("every", "lamp", False): "jede alte Lampe|jede alte Lampe|jeder alten Lampe|jeder alten Lampe",
    ("all", "table", True): "alle alten Tische|alle alten Tische|allen alten Tischen|aller alten Tische",
    ("both", "son", True): "beide alten Söhne|beide alten Söhne|beiden alten Söhnen|beider alten Söhne",
    ("many", "man", True): "viele alte Männer|viele alte Männer|vielen alten Männern|vieler alter Männer",
    ("some", "cat", True): "einige alte Katzen|einige alte Katzen|einigen alten Katzen|einiger alter Katzen",
    ("several", "key", True):
        "mehrere alte Schlüssel|mehrere alte Schlüssel|mehreren alten Schlüsseln|mehrerer alter Schlüssel",
    ("three", "car", True): "drei alte Autos|drei alte Autos|drei alten Autos|drei alter Autos",
    ("", "wine", False): "alter Wein|alten Wein|altem Wein|alten Weins",
    ("", "milk", False): "alte Milch|alte Milch|alter Milch|alter Milch",
    ("", "water", False): "altes Wasser|altes Wasser|altem Wasser|alten Wassers",
}  # fmt: skip


@pytest.mark.parametrize("key", PARADIGMS, ids=lambda key: "-".join(map(str, key)))
def test_endings_are_those_of_the_school_grammar(key):
    determiner, word, plural = key
    assert "|".join(bare(noun_phrase(noun(word), determiner, adjective("old"), plural).german)) == PARADIGMS[key]


def test_grammar_irregular_adjective_stems_and_degrees():
    assert bare(noun_phrase(noun("cellar"), "a", adjective("dark")).german[0]) == "ein dunkler Keller"
    assert bare(noun_phrase(noun("car"), "a", adjective("expensive")).german[0]) == "ein teures Auto"
    assert bare(noun_phrase(noun("car"), "the", adjective("good"), degree=2).german[2]) == "dem besten Auto"
    assert adjective("big").stems == ("groß", "größer", "größt")
    assert adjective("warm").stems == ("warm", "wärmer", "wärmst")
    assert adjective("famous").english == ("famous", "more famous", "most famous")
    assert adjective("happy").english == ("happy", "happier", "happiest")


PRESENT = {
    "read": "lese liest liest lesen lesen", "give": "gebe gibst gibt geben geben", 
    "wait": "warte wartest wartet warten warten",
    "smile": "lächle lächelst lächelt lächeln lächeln", "open": "öffne öffnest öffnet öffnen öffnen",
    "feed": "füttere fütterst füttert füttern füttern", "dance": "tanze tanzt tanzt tanzen tanzen",
    "help": "helfe hilfst hilft helfen helfen", "like": "mag magst mag mögen mögen",
    "invite": "lade lädst lädt laden laden",
    "be": "bin bist ist sind sind", "have": "habe hast hat haben haben", "know": "kenne kennst kennt kennen kennen",
}  # fmt: skip


def verb(english: str, table: str) -> Verb:
    base, _, particle = english.partition(" ")
    return next(one for one in verbs(table) if one.english[0] == base and one.particle == particle)


def all_verbs() -> list[Verb]:
    return list(verbs("transitive", "intransitive", "dative", "ditransitive", "have", "be"))


@pytest.mark.parametrize("english", PRESENT)
def test_grammar_present_forms(english):
    found = next(one for one in all_verbs() if one.english[0] == english)
    assert " ".join(found.present) == PRESENT[english]


def test_grammar_participles_put_ge_where_it_belongs():
    expected = {
        "turn on": "eingeschaltet", "visit": "besucht", "repair": "repariert", "see": "gesehen", "sell": "verkauft",
        "call": "angerufen", "understand": "verstanden", "bring along": "mitgebracht", "throw away": "weggeworfen",
        "prepare": "vorbereitet", "try on": "anprobiert", "open": "geöffnet", "greet": "begrüßt",
        "translate": "übersetzt",
    }  # fmt: skip
    for english, participle in expected.items():
        assert verb(english, "transitive").participle == participle


def test_grammar_imperatives_change_e_to_i_but_not_a_to_umlaut():
    assert imperative("lesen", "liest") == "lies"
    assert imperative("fahren", "fährt") == "fahr"
    assert imperative("öffnen") == "öffne"
    assert imperative("kaufen") == "kauf"


# --- sentences by hand, through clauses

ANNA, PETER, BERLIN = name("Anna", "Anna", 2), name("Peter", "Peter", 0), ("in Berlin", "in Berlin")
TODAY, OFTEN = Adverb("today", "heute", "any"), Adverb("often", "oft", "mid")


def the(english: str, plural: bool = False, determiner: str = "the", of: str = "") -> Nominal:
    return noun_phrase(noun(english), determiner, adjective(of) if of else None, plural)


def clause(subject: Nominal, english: str, table: str = "transitive", **parts) -> Clause:  # tests only
    return Clause(subject, verb(english, table), **parts)


BE = verbs("be")[0]
NEXT_TO_THE_BED = ("next to the bed", the("bed").after("neben", 1))
GOLD = [
    (clause(ANNA, "buy", accusative=the("car", determiner="a")),
     "Anna buys a car | Anna kauft ein Auto"),
    (clause(ANNA, "buy", accusative=the("car", determiner="not a"), negated=True),
     "Anna does not buy a car | Anna kauft kein Auto"),
    (clause(ANNA, "buy", accusative=the("car"), negated=True, time=TODAY),
     "Anna does not buy the car today | Anna kauft das Auto heute nicht"),
    (clause(ANNA, "buy", accusative=the("car"), time=TODAY),
     "Anna buys the car today | Anna kauft heute das Auto"),
    (clause(pronoun("he"), "turn on", accusative=the("lamp")),
     "he turns on the lamp | er schaltet die Lampe ein"),
    (clause(pronoun("he"), "turn on", tense="past", accusative=the("lamp")),
     "he turned on the lamp | er hat die Lampe eingeschaltet"),
    (clause(pronoun("we"), "pick up", accusative=pronoun("she")),
     "we pick her up | wir holen sie ab"),
    (clause(pronoun("I"), "arrive", "intransitive", tense="past", place=BERLIN),
     "I arrived in Berlin | ich bin in Berlin angekommen"),
    (clause(PETER, "help", "dative", dative=the("student")),
     "Peter helps the student | Peter hilft dem Studenten"),
    (clause(PETER, "give", "ditransitive", dative=the("child", True), accusative=the("apple", determiner="a")),
     "Peter gives the children an apple | Peter gibt den Kindern einen Apfel"),
    (clause(PETER, "give", "ditransitive", dative=the("child"), accusative=the("apple"), recipient_last=True),
     "Peter gives the apple to the child | Peter gibt dem Kind den Apfel"),
    (clause(ANNA, "read", tense="progressive", accusative=the("book", determiner="a")),
     "Anna is reading a book | Anna liest gerade ein Buch"),
    (clause(ANNA, "read", time=OFTEN, accusative=the("book", True, "a")),
     "Anna often reads books | Anna liest oft Bücher"),
    (clause(ANNA, "close", tense="future", accusative=the("window")),
     "Anna will close the window | Anna wird das Fenster schließen"),
    (clause(ANNA, "sleep", "intransitive", tense="can", negated=True),
     "Anna cannot sleep | Anna kann nicht schlafen"),
    (clause(ANNA, "sleep", "intransitive", tense="want", negated=True),
     "Anna does not want to sleep | Anna will nicht schlafen"),
    (clause(ANNA, "sleep", "intransitive", tense="had to"),
     "Anna had to sleep | Anna musste schlafen"),
    (clause(the("letter"), "write", tense="past", passive=True, place=("by my uncle", "von meinem Onkel")),
     "the letter was written by my uncle | der Brief wurde von meinem Onkel geschrieben"),
    (clause(the("car"), "repair", tense="must", passive=True),
     "the car must be repaired | das Auto muss repariert werden"),
    (clause(the("car"), "repair", tense="perfect", passive=True),
     "the car has been repaired | das Auto ist repariert worden"),
    (Clause(the("house", True, of="old"), BE, "past", predicate=("big", "groß")),
     "the old houses were big | die alten Häuser waren groß"),
    (clause(ANNA, "rest", "intransitive", tense="past"),
     "Anna rested | Anna hat sich ausgeruht"),
    (clause(the("cat"), "lie", "position", place=("under the bed", the("bed").after("unter", 2))),
     "the cat lies under the bed | die Katze liegt unter dem Bett"),
    (clause(ANNA, "put", "putting", tense="perfect", accusative=the("cup"), place=NEXT_TO_THE_BED),
     "Anna has put the cup next to the bed | Anna hat die Tasse neben das Bett gestellt"),
    (clause(ANNA, "go", "motion", place=("into the house", the("house").after("in", 1))),
     "Anna goes into the house | Anna geht ins Haus"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "sides"), GOLD, ids=[sides for _, sides in GOLD])
def test_grammar_clause_reads_as_written_by_hand(what, sides):
    assert f"{english_clause(what)} | {bare(german_clause(what)[0])}" == sides


def test_grammar_orders_of_words():
    past = clause(ANNA, "turn on", tense="past", accusative=the("lamp"))
    assert bare(german_clause(past, "inverted", front="heute")) == ("heute hat Anna die Lampe eingeschaltet", 3)
    assert bare(german_clause(past, "final", front="weil")) == ("weil Anna die Lampe eingeschaltet hat", 3)
    assert bare(german_clause(past, "inverted")) == ("hat Anna die Lampe eingeschaltet", 3)
    assert english_clause(past, question=True) == "did Anna turn on the lamp"
    now = clause(ANNA, "turn on", accusative=the("lamp"))
    assert bare(german_clause(now)) == ("Anna schaltet die Lampe ein", 2)
    assert bare(german_clause(now, "final", front="dass")[0]) == "dass Anna die Lampe einschaltet"
    assert bare(infinitive_clause(now)) == ("to turn on the lamp", "die Lampe einzuschalten")


def test_grammar_reflexive_pronoun_precedes_a_noun_and_follows_a_pronoun():
    assert bare(german_clause(clause(ANNA, "rest", "intransitive"), "inverted")[0]) == "ruht sich Anna aus"
    assert bare(german_clause(clause(pronoun("we"), "rest", "intransitive"), "inverted")[0]) == "ruhen wir uns aus"


def test_grammar_relative_pronouns_by_case_and_gender():
    by_case = ["der das die die", "den das die die", "dem dem der denen", "dessen dessen deren deren"]
    for case, row in enumerate(by_case):
        assert [bare(relative_pronoun(case, gender)) for gender in range(4)] == row.split()


def test_grammar_commands():
    you = pronoun("you")
    door = the("door")
    assert bare(command(clause(you, "close", accusative=door), False)[:2]) == ("close the door!", "schließ die Tür!")
    assert bare(command(clause(you, "read", accusative=the("book")), True)[:2]) == (
        "please read the book.",
        "bitte lies das Buch.",
    )
    negative = clause(you, "turn on", accusative=the("lamp"), negated=True)
    assert bare(command(negative, False)) == ("do not turn on the lamp!", "schalte die Lampe nicht ein!", 3)


def test_grammar_owners_stand_in_the_genitive():
    assert bare(owned(the("dog"), the("neighbour", determiner="my")).german[1]) == "den Hund meines Nachbarn"
    assert bare(possessed(ANNA, noun("dog"), True).german) == (
        "Annas Hunde",
        "Annas Hunde",
        "Annas Hunden",
        "Annas Hunde",
    )


def test_grammar_article_stays_apart_when_a_clause_follows():
    house = the("house")
    assert bare(house.after("in", 2)) == "im Haus"
    assert bare(house.with_tail("that is old", ", das alt ist,").after("in", 2)) == "in dem Haus, das alt ist,"


def test_grammar_every_noun_is_complete_and_no_english_noun_has_two_translations():
    every = list(all_nouns())
    english = Counter(one.english[0] for one in every)
    assert max(english.values()) == 1
    for one in every:
        assert len(one.german) == 8
        assert one.german[0][0].isupper()
        if one.german[4]:
            assert one.german[6][-1] in "ns"
            assert one.english[0] != one.english[1]
