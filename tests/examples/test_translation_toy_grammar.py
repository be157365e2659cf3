"""The rules of the toy grammar, by sentences whose translation is known."""

import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "translation_small" / "toy_grammar.py"
toy = runpy.run_path(str(SCRIPT))
Noun, Clause, Sentence = toy["Noun"], toy["Clause"], toy["Sentence"]


def entry(table, english):
    return next(words for words in toy[table] if words[0] == english)


def noun(name, adjective=None, **how):
    table = "PEOPLE" if name in [words[0] for words in toy["PEOPLE"]] else "THINGS"
    return Noun(entry(table, name), adjective=adjective and entry("ADJECTIVES", adjective), **how)


def clause(subject, verb, *objects, **how):
    tables = ("INTRANSITIVE", "TRANSITIVE", "OPENING", "GIVING", "SAYING")
    found = next(words for table in tables for words in toy[table] if words[0] == verb)
    how.setdefault("plural", bool(subject and subject.plural))
    return Clause(subject, found, list(objects), **how)


BECAUSE, TODAY = entry("CONJUNCTIONS", "because"), entry("ADVERBS", "today")
MAN, WOMAN, DOG, DOOR = noun("man"), noun("woman"), noun("dog"), noun("door")
WORKS, OPENS, MANY = clause(MAN, "work"), clause(WOMAN, "open", DOOR), {"plural": True}
SEEN_DOG = noun("dog", relative=clause(MAN, "see"))
WORKING_CATS = noun("cat", plural=True, relative=clause(None, "work", plural=True))
SMALL_CATS, SMALL_CARS = (noun(name, "small", plural=True, definite=False) for name in ("cat", "car"))
#: the rule, then English, German, and the sentence
RULES = {
    "the order of subject and object decides the case": [
        ("The dog sees the man.", "Der Hund sieht den Mann.", clause(DOG, "see", MAN)),
        ("The man sees the dog.", "Der Mann sieht den Hund.", clause(MAN, "see", DOG)),
    ],
    "a separable prefix goes last, and joins the verb where that is last itself": [
        ("The woman opens the door.", "Die Frau macht die Tür auf.", OPENS),
        ("The woman has opened the door.", "Die Frau hat die Tür aufgemacht.", replace(OPENS, tense="perfect")),
        (
            "The women must open the doors.",
            "Die Frauen müssen die Türen aufmachen.",
            clause(noun("woman", **MANY), "open", noun("door", **MANY), tense="must"),
        ),
    ],
    "the verb is second after what comes first; an adverb moves between verb and object": [
        (
            "Today the woman opens the door.",
            "Heute macht die Frau die Tür auf.",
            replace(OPENS, adverb=TODAY, fronted=True),
        ),
        ("The woman opens the door today.", "Die Frau macht heute die Tür auf.", replace(OPENS, adverb=TODAY)),
    ],
    "in subordinate clauses the verb is last, and second after one that comes first": [
        (
            "The man knows that the woman opens the door.",
            "Der Mann weiß, dass die Frau die Tür aufmacht.",
            clause(MAN, "know", that=OPENS),
        ),
        (
            "The man has said that the woman will sleep.",
            "Der Mann hat gesagt, dass die Frau schlafen wird.",
            clause(MAN, "say", tense="perfect", that=clause(WOMAN, "sleep", tense="future")),
        ),
        (
            "The man works because the woman opens the door.",
            "Der Mann arbeitet, weil die Frau die Tür aufmacht.",
            (WORKS, BECAUSE, OPENS),
        ),
        (
            "Because the woman opens the door, the man works.",
            "Weil die Frau die Tür aufmacht, arbeitet der Mann.",
            (WORKS, BECAUSE, OPENS, True),
        ),
    ],
    "dative before accusative, with the dative's n in the plural; endings of adjectives": [
        (
            "The old man gives the children an old chair.",
            "Der alte Mann gibt den Kindern einen alten Stuhl.",
            clause(noun("man", "old"), "give", noun("child", **MANY), noun("chair", "old", definite=False)),
        ),
        (
            "A small horse shows small cats small cars.",
            "Ein kleines Pferd zeigt kleinen Katzen kleine Autos.",
            clause(noun("horse", "small", definite=False), "show", SMALL_CATS, SMALL_CARS),
        ),
    ],
    "relative pronouns, as subject and as object": [
        (
            "The dog that sees the man sleeps.",
            "Der Hund, der den Mann sieht, schläft.",
            clause(noun("dog", relative=clause(None, "see", MAN)), "sleep"),
        ),
        ("The dog that the man sees sleeps.", "Der Hund, den der Mann sieht, schläft.", clause(SEEN_DOG, "sleep")),
        (
            "The woman finds the dog that the man sees.",
            "Die Frau findet den Hund, den der Mann sieht.",
            clause(WOMAN, "find", SEEN_DOG),
        ),
        (
            "The man knows that the dog that sleeps sees the cats that work.",
            "Der Mann weiß, dass der Hund, der schläft, die Katzen, die arbeiten, sieht.",
            clause(MAN, "know", that=clause(noun("dog", relative=clause(None, "sleep")), "see", WORKING_CATS)),
        ),
    ],
}


@pytest.mark.parametrize("rule", RULES)
def test_a_sentence_has_the_translation_that_the_rules_of_german_ask_for(rule):
    for english, german, parts in RULES[rule]:
        sentence = Sentence(*parts) if isinstance(parts, tuple) else Sentence(parts)
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
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "train.de.tmp").touch()  # of another process
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        subprocess.run([sys.executable, SCRIPT, tmp_path / folder, str(seed), "20", "train=50"], check=True)
    texts = {folder: (tmp_path / folder / "train.de").read_text() for folder in "abc"}
    assert texts["a"] == texts["b"] != texts["c"]
    assert len(texts["a"].splitlines()) == 50 and (tmp_path / "a" / "train.de.tmp").exists()
