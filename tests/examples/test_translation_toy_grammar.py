"""The rules of the toy grammar, by sentences whose translation is known."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "translation_small" / "toy_grammar.py"
toy = runpy.run_path(str(SCRIPT))
Noun, Clause, Sentence = toy["Noun"], toy["Clause"], toy["Sentence"]


def entry(table, english):
    return next(words for words in toy[table] if words[0] == english)


def person(name, **how):
    return Noun(entry("PEOPLE", name), **how)


def thing(name, **how):
    return Noun(entry("THINGS", name), **how)


def adjective(english):
    return entry("ADJECTIVES", english)


def clause(subject, verb, *objects, **how):
    tables = ("INTRANSITIVE", "TRANSITIVE", "OPENING", "GIVING", "SAYING")
    found = next(words for table in tables for words in toy[table] if words[0] == verb)
    how.setdefault("plural", bool(subject and subject.plural))
    return Clause(subject, found, list(objects), **how)


def today(**how):
    return dict(adverb=entry("ADVERBS", "today"), **how)


BECAUSE = entry("CONJUNCTIONS", "because")
MAN, WOMAN, DOG = person("man"), person("woman"), person("dog")
OPENS = clause(WOMAN, "open", thing("door"))


def said(english, german, main, *more):
    return pytest.param(english, german, Sentence(main, *more), id=english)


@pytest.mark.parametrize(
    "english, german, sentence",
    [
        # the order of subject and object decides the case
        said("The dog sees the man.", "Der Hund sieht den Mann.", clause(DOG, "see", MAN)),
        said("The man sees the dog.", "Der Mann sieht den Hund.", clause(MAN, "see", DOG)),
        # separable verbs: the prefix goes last, and joins the verb where that is last itself
        said("The woman opens the door.", "Die Frau macht die Tür auf.", OPENS),
        said(
            "The woman has opened the door.",
            "Die Frau hat die Tür aufgemacht.",
            clause(WOMAN, "open", thing("door"), tense="perfect"),
        ),
        said(
            "The women must open the doors.",
            "Die Frauen müssen die Türen aufmachen.",
            clause(person("woman", plural=True), "open", thing("door", plural=True), tense="must"),
        ),
        # verb second after what comes first; an adverb moves between verb and object
        said(
            "Today the woman opens the door.",
            "Heute macht die Frau die Tür auf.",
            clause(WOMAN, "open", thing("door"), **today(fronted=True)),
        ),
        said(
            "The woman opens the door today.",
            "Die Frau macht heute die Tür auf.",
            clause(WOMAN, "open", thing("door"), **today()),
        ),
        # subordinate clauses: verb last, and verb second after one that comes first
        said(
            "The man knows that the woman opens the door.",
            "Der Mann weiß, dass die Frau die Tür aufmacht.",
            clause(MAN, "know", that=OPENS),
        ),
        said(
            "The man has said that the woman will sleep.",
            "Der Mann hat gesagt, dass die Frau schlafen wird.",
            clause(MAN, "say", tense="perfect", that=clause(WOMAN, "sleep", tense="future")),
        ),
        said(
            "The man works because the woman opens the door.",
            "Der Mann arbeitet, weil die Frau die Tür aufmacht.",
            clause(MAN, "work"),
            BECAUSE,
            OPENS,
        ),
        said(
            "Because the woman opens the door, the man works.",
            "Weil die Frau die Tür aufmacht, arbeitet der Mann.",
            clause(MAN, "work"),
            BECAUSE,
            OPENS,
            True,
        ),
        # dative before accusative, with the dative's n in the plural
        said(
            "The man gives the children a letter.",
            "Der Mann gibt den Kindern einen Brief.",
            clause(MAN, "give", person("child", plural=True), thing("letter", definite=False)),
        ),
        # endings of the adjective after the, after a, and after neither
        said(
            "The old man needs an old chair.",
            "Der alte Mann braucht einen alten Stuhl.",
            clause(
                person("man", adjective=adjective("old")),
                "need",
                thing("chair", definite=False, adjective=adjective("old")),
            ),
        ),
        said(
            "A small horse shows small cats small cars.",
            "Ein kleines Pferd zeigt kleinen Katzen kleine Autos.",
            clause(
                person("horse", definite=False, adjective=adjective("small")),
                "show",
                *(
                    Noun(word, plural=True, definite=False, adjective=adjective("small"))
                    for word in (entry("PEOPLE", "cat"), entry("THINGS", "car"))
                ),
            ),
        ),
        # relative pronouns: as subject, as object
        said(
            "The dog that sees the man sleeps.",
            "Der Hund, der den Mann sieht, schläft.",
            clause(person("dog", relative=clause(None, "see", MAN)), "sleep"),
        ),
        said(
            "The dog that the man sees sleeps.",
            "Der Hund, den der Mann sieht, schläft.",
            clause(person("dog", relative=clause(MAN, "see")), "sleep"),
        ),
        said(
            "The woman finds the dog that the man sees.",
            "Die Frau findet den Hund, den der Mann sieht.",
            clause(WOMAN, "find", person("dog", relative=clause(MAN, "see"))),
        ),
        said(
            "The man knows that the dog that sleeps sees the cats that work.",
            "Der Mann weiß, dass der Hund, der schläft, die Katzen, die arbeiten, sieht.",
            clause(
                MAN,
                "know",
                that=clause(
                    person("dog", relative=clause(None, "sleep")),
                    "see",
                    person("cat", plural=True, relative=clause(None, "work", plural=True)),
                ),
            ),
        ),
    ],
)
def test_a_sentence_has_the_translation_that_the_rules_of_german_ask_for(english, german, sentence):
    assert (sentence.english(), sentence.german()) == (english, german)


def test_splits_are_disjoint_and_long_sentences_are_in_their_own():
    counts = {"train": 3000, "valid": 200, "test": 200, "long": 100}
    found = toy["splits"](1, 20, counts)
    assert {split: len(pairs) for split, pairs in found.items()} == counts
    english = [source for pairs in found.values() for source, _ in pairs]
    assert len(set(english)) == sum(counts.values())
    for split, pairs in found.items():
        assert all((len(source.split()) > 20) == (split == "long") for source, _ in pairs)


def test_one_english_sentence_has_one_translation():
    speaker, translations, again = toy["Speaker"](3), {}, 0
    for i in range(30_000):
        sentence = speaker.sentence(i % 4)
        english = sentence.english()
        again += english in translations
        assert translations.setdefault(english, sentence.german()) == sentence.german()
    assert again > 100  # the question was asked


def test_the_same_seed_writes_the_same_files_and_another_one_others(tmp_path):
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        subprocess.run([sys.executable, SCRIPT, tmp_path / folder, str(seed), "20", "train=50"], check=True)
    texts = {folder: (tmp_path / folder / "train.de").read_text() for folder in "abc"}
    assert texts["a"] == texts["b"] != texts["c"]
    assert len(texts["a"].splitlines()) == 50
