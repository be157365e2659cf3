"""English sentences of a small grammar and their German translations:

    python toy_grammar.py FOLDER SEED LONGEST SPLIT=COUNT... [long=COUNT]

writes FOLDER/SPLIT.en and FOLDER/SPLIT.de. No English sentence is in two splits or twice in one;
one English sentence has one translation. Sentences have at most LONGEST words, those of the split
`long` more. The same arguments give the same files.

Words cannot be translated one by one: what German puts where, and with which ending, depends on
the whole sentence.

    verb last            the man knows that the cat sees it   ..., dass die Katze ... sieht
    separable verb       opens the door                       macht die Tür auf
    verb second          today the man opens ...              heute macht der Mann ... auf
    participle last      has opened the door                  hat die Tür aufgemacht
    case                 the dog sees the man                 der Hund sieht den Mann
    relative pronoun     the dog that the man sees            der Hund, den der Mann sieht,
"""

import os
import random
import sys
from dataclasses import dataclass, field
from typing import Optional

from fairseq_relpos.atomic_files import write_text

# English singular and plural, gender, German singular and plural
PEOPLE = [
    ("man", "men", "m", "Mann", "Männer"),
    ("woman", "women", "f", "Frau", "Frauen"),
    ("child", "children", "n", "Kind", "Kinder"),
    ("teacher", "teachers", "m", "Lehrer", "Lehrer"),
    ("dog", "dogs", "m", "Hund", "Hunde"),
    ("cat", "cats", "f", "Katze", "Katzen"),
    ("horse", "horses", "n", "Pferd", "Pferde"),
    ("aunt", "aunts", "f", "Tante", "Tanten"),
]
THINGS = [
    ("letter", "letters", "m", "Brief", "Briefe"),
    ("chair", "chairs", "m", "Stuhl", "Stühle"),
    ("door", "doors", "f", "Tür", "Türen"),
    ("lamp", "lamps", "f", "Lampe", "Lampen"),
    ("book", "books", "n", "Buch", "Bücher"),
    ("window", "windows", "n", "Fenster", "Fenster"),
    ("car", "cars", "n", "Auto", "Autos"),
]
ADJECTIVES = [("old", "alt"), ("small", "klein"), ("new", "neu"), ("red", "rot"), ("strange", "seltsam")]

# English infinitive, third person, participle; German prefix, infinitive, third person, participle
# (all three without the prefix)
INTRANSITIVE = [
    ("sleep", "sleeps", "slept", "", "schlafen", "schläft", "geschlafen"),
    ("laugh", "laughs", "laughed", "", "lachen", "lacht", "gelacht"),
    ("work", "works", "worked", "", "arbeiten", "arbeitet", "gearbeitet"),
    ("listen", "listens", "listened", "zu", "hören", "hört", "gehört"),
]
TRANSITIVE = [
    ("see", "sees", "seen", "", "sehen", "sieht", "gesehen"),
    ("find", "finds", "found", "", "finden", "findet", "gefunden"),
    ("carry", "carries", "carried", "", "tragen", "trägt", "getragen"),
    ("need", "needs", "needed", "", "brauchen", "braucht", "gebraucht"),
    ("watch", "watches", "watched", "an", "sehen", "sieht", "gesehen"),
    ("bring", "brings", "brought", "mit", "bringen", "bringt", "gebracht"),
    ("choose", "chooses", "chosen", "aus", "wählen", "wählt", "gewählt"),
]
# only of things
OPENING = [
    ("open", "opens", "opened", "auf", "machen", "macht", "gemacht"),
    ("close", "closes", "closed", "zu", "machen", "macht", "gemacht"),
]
# with a dative before the accusative
GIVING = [
    ("give", "gives", "given", "", "geben", "gibt", "gegeben"),
    ("show", "shows", "shown", "", "zeigen", "zeigt", "gezeigt"),
    ("return", "returns", "returned", "zurück", "geben", "gibt", "gegeben"),
]
# with a clause
SAYING = [
    ("know", "knows", "known", "", "wissen", "weiß", "gewusst"),
    ("believe", "believes", "believed", "", "glauben", "glaubt", "geglaubt"),
    ("say", "says", "said", "", "sagen", "sagt", "gesagt"),
]
ADVERBS = [("today", "heute"), ("now", "jetzt"), ("often", "oft"), ("here", "hier")]
CONJUNCTIONS = [("because", "weil"), ("although", "obwohl"), ("when", "wenn")]

# English third person, plural; German third person, plural; what German puts last
TENSES = {
    "present": None,
    "perfect": ("has", "have", "hat", "haben", "participle"),
    "future": ("will", "will", "wird", "werden", "infinitive"),
    "must": ("must", "must", "muss", "müssen", "infinitive"),
    "can": ("can", "can", "kann", "können", "infinitive"),
}

THE = {
    "nom": {"m": "der", "f": "die", "n": "das", "p": "die"},
    "acc": {"m": "den", "f": "die", "n": "das", "p": "die"},
    "dat": {"m": "dem", "f": "der", "n": "dem", "p": "den"},
}
A = {
    "nom": {"m": "ein", "f": "eine", "n": "ein"},
    "acc": {"m": "einen", "f": "eine", "n": "ein"},
    "dat": {"m": "einem", "f": "einer", "n": "einem"},
}
# endings of an adjective after the article, after a, and after neither (plural)
AFTER_THE = {
    "nom": {"m": "e", "f": "e", "n": "e", "p": "en"},
    "acc": {"m": "en", "f": "e", "n": "e", "p": "en"},
    "dat": {"m": "en", "f": "en", "n": "en", "p": "en"},
}
AFTER_A = {
    "nom": {"m": "er", "f": "e", "n": "es"},
    "acc": {"m": "en", "f": "e", "n": "es"},
    "dat": {"m": "en", "f": "en", "n": "en"},
}
BARE = {"nom": {"p": "e"}, "acc": {"p": "e"}, "dat": {"p": "en"}}


@dataclass
class Noun:
    """A noun phrase; its relative clause lacks the subject or the object that the noun stands for."""

    word: tuple
    plural: bool = False
    definite: bool = True
    adjective: tuple | None = None
    relative: Optional["Clause"] = None

    def english(self):
        singular, plural, *_ = self.word
        words = ["the"] if self.definite else []
        if self.adjective:
            words.append(self.adjective[0])
        words.append(plural if self.plural else singular)
        if not self.definite and not self.plural:
            words.insert(0, "an" if words[0][0] in "aeiou" else "a")
        if self.relative:
            words += ["that", *self.relative.english()]
        return words

    def german(self, case):
        _, _, gender, singular, plural = self.word
        gender = "p" if self.plural else gender
        noun = plural if self.plural else singular
        if self.plural and case == "dat" and noun[-1] not in "ns":
            noun += "n"
        articles, endings = (THE, AFTER_THE) if self.definite else (A, BARE if self.plural else AFTER_A)
        words = [] if articles is A and self.plural else [articles[case][gender]]
        if self.adjective:
            words.append(self.adjective[1] + endings[case][gender])
        words.append(noun)
        if self.relative:
            pronoun = THE["acc" if self.relative.subject else "nom"][gender]
            words += [",", pronoun, *self.relative.german_last(), ","]
        return words


@dataclass
class Clause:
    """Subject None: of a relative clause, whose noun is the subject."""

    subject: Noun | None
    verb: tuple
    objects: list[Noun] = field(default_factory=list)
    tense: str = "present"
    plural: bool = False
    adverb: tuple | None = None
    #: the adverb comes first
    fronted: bool = False
    #: what is known, believed or said
    that: Optional["Clause"] = None

    def english(self):
        infinitive, third, participle = self.verb[:3]
        auxiliary = TENSES[self.tense]
        if auxiliary is None:
            words = [infinitive if self.plural else third]
        else:
            last = participle if auxiliary[4] == "participle" else infinitive
            words = [auxiliary[self.plural], last]
        subject = self.subject.english() if self.subject else []
        words = subject + words + [word for thing in self.objects for word in thing.english()]
        if self.that:
            words += ["that", *self.that.english()]
        if self.adverb:
            words = [self.adverb[0], *words] if self.fronted else [*words, self.adverb[0]]
        return words

    def german_verb(self):
        """The finite verb, and the words at the end."""
        prefix, infinitive, third, participle = self.verb[3:]
        auxiliary = TENSES[self.tense]
        if auxiliary is None:
            return (infinitive if self.plural else third), prefix
        last = participle if auxiliary[4] == "participle" else infinitive
        return auxiliary[2 + self.plural], prefix + last

    def german_middle(self):
        words = [self.adverb[1]] if self.adverb and not self.fronted else []
        cases = ["dat", "acc"][-len(self.objects) :]
        return words + [word for thing, case in zip(self.objects, cases) for word in thing.german(case)]

    def german_that(self):
        return [",", "dass", *self.that.german_last()] if self.that else []

    def german_second(self, first=None):
        """Verb second. first: what stands before it, the subject if nothing else does."""
        finite, last = self.german_verb()
        if self.fronted:
            first = [self.adverb[1]]
        subject = self.subject.german("nom")
        words = [*first, finite, *subject] if first else [*subject, finite]
        return [*words, *self.german_middle(), *([last] if last else []), *self.german_that()]

    def german_last(self):
        """Verb last, the separable prefix before it."""
        finite, last = self.german_verb()
        verb = [last + finite] if TENSES[self.tense] is None else [last, finite]
        subject = self.subject.german("nom") if self.subject else []
        return [*subject, *self.german_middle(), *verb, *self.german_that()]


@dataclass
class Sentence:
    main: Clause
    conjunction: tuple | None = None
    side: Clause | None = None
    #: the side clause comes first
    fronted: bool = False

    def english(self):
        if not self.side:
            return written(self.main.english())
        side = [self.conjunction[0], *self.side.english()]
        main = self.main.english()
        return written([*side, ",", *main] if self.fronted else [*main, *side])

    def german(self):
        if not self.side:
            return written(self.main.german_second())
        side = [self.conjunction[1], *self.side.german_last()]
        if self.fronted:
            return written(self.main.german_second([*side, ","]))
        return written([*self.main.german_second(), ",", *side])


def written(words):
    """With one comma where two clauses end, and none before the full stop."""
    text = ""
    for word, following in zip(words, [*words[1:], "."]):
        if word == ",":
            text += "" if following in ",." else ","
        else:
            text += f" {word}" if text else word
    return text[0].upper() + text[1:] + "."


class Speaker:
    """Draws sentences. It avoids ambiguous English: an adverb at the end
    belongs to the clause whose words stand before it, relative clauses have none."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def noun(self, words, depth=0, relatives=0.25):
        plural, definite = self.chance.random() < 0.3, self.chance.random() < 0.7
        adjective = self.chance.choice(ADJECTIVES) if self.chance.random() < 0.35 else None
        noun = Noun(self.chance.choice(words), plural, definite, adjective)
        if depth > 0 and self.chance.random() < relatives:
            noun.relative = self.relative(noun, depth - 1)
        return noun

    def relative(self, noun, depth):
        animate = noun.word in PEOPLE
        if animate and self.chance.random() < 0.5:
            verb, things = self.action()
            objects = [self.noun(things, depth)] if things else []
            return Clause(None, verb, objects, self.tense(), noun.plural)
        verb = self.chance.choice(TRANSITIVE if animate else TRANSITIVE + OPENING)
        subject = self.noun(PEOPLE)
        return Clause(subject, verb, [], self.tense(), subject.plural)

    def action(self):
        """A verb and what its object may be."""
        kind = self.chance.choice("iitttto")
        if kind == "i":
            return self.chance.choice(INTRANSITIVE), None
        if kind == "o":
            return self.chance.choice(OPENING), THINGS
        return self.chance.choice(TRANSITIVE), self.chance.choice([PEOPLE, THINGS])

    def tense(self):
        return self.chance.choice(["present", "present", *list(TENSES)[1:]])

    def clause(self, depth, may_front=False):
        subject = self.noun(PEOPLE, depth)
        clause = Clause(subject, (), [], self.tense(), subject.plural)
        if depth > 0 and self.chance.random() < 0.35:
            clause.verb = self.chance.choice(SAYING)
            clause.that = self.clause(depth - 1)
        elif self.chance.random() < 0.2:
            clause.verb = self.chance.choice(GIVING)
            clause.objects = [self.noun(PEOPLE), self.noun(THINGS, depth)]
        else:
            clause.verb, things = self.action()
            clause.objects = [self.noun(things, depth)] if things else []
        if self.chance.random() < 0.4:
            clause.fronted = may_front and (bool(clause.that) or self.chance.random() < 0.6)
            if clause.fronted or not clause.that:
                clause.adverb = self.chance.choice(ADVERBS)
        return clause

    def sentence(self, depth):
        if self.chance.random() < 0.35:
            fronted = self.chance.random() < 0.5
            main = self.clause(depth, may_front=not fronted)
            return Sentence(main, self.chance.choice(CONJUNCTIONS), self.clause(depth), fronted)
        return Sentence(self.clause(depth, may_front=True))


SHORT_DEPTH, LONG_DEPTH = 2, 4


def splits(seed, longest, counts):
    """split -> [(English, German)]; counts: split -> number of sentences."""
    speaker = Speaker(seed)
    seen = set()
    found = {split: [] for split in counts}
    for split, count in counts.items():
        long = split == "long"
        while len(found[split]) < count:
            sentence = speaker.sentence(LONG_DEPTH if long else SHORT_DEPTH)
            english = sentence.english()
            if english not in seen and (len(english.split()) > longest) == long:
                seen.add(english)
                found[split].append((english, sentence.german()))
    return found


def main(folder, seed, longest, *counts):
    counts = {split: int(count) for split, count in (text.split("=") for text in counts)}
    os.makedirs(folder, exist_ok=True)
    for split, pairs in splits(int(seed), int(longest), counts).items():
        for language, lines in zip(("en", "de"), zip(*pairs)):
            write_text(f"{folder}/{split}.{language}", "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
