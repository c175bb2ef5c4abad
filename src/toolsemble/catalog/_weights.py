"""``Weights``: how much the words of a query and the texts of a tool count in a search."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """The numbers of the ranking and of the floor; `evals/catalog_weights.py` chooses them.

    >>> Weights().name > Weights().description > Weights().parameters
    True
    """

    name: float = 4.8
    """A term in the name of a tool, or in its title."""
    description: float = 1.7
    """A term in its description."""
    parameters: float = 0.7
    """A term in the name of a parameter."""
    texts: float = 0.6
    """A term in the description of a parameter."""
    choices: float = 1.0
    """A term in a value that a parameter may have."""
    name_length: float = 0.5
    """How much less a term counts in a long name than in a short one, from 0 to 1."""
    description_length: float = 0.9
    """The same for descriptions."""
    parameters_length: float = 0.3
    """The same for names, descriptions and values of parameters."""
    longest: float = 2.0
    """How many times the average length a text counts at most: a tool that is explained at length is not punished."""
    saturation: float = 2.4
    """How slowly further mentions of a term count less."""
    rarity: float = 0.6
    """The power of the inverse document frequency."""
    number: float = 0.2
    """A number in a query."""
    quoted: float = 1.0
    """A word in quotation marks."""
    date: float = 0.6
    """The terms of dates, if there is a date in a query."""
    place: float = 0.6
    """The terms of places, if there is the name of one."""
    asked: float = 0.5
    """The terms that a question word stands for, such as "distance" for "how far"."""
    synonym: float = 0.11
    """A synonym of a word, for the ranking."""
    related: float = 0.25
    """A word of the task of which a tool has only a synonym, for the floor."""
    caseless: float = 0.2
    """A word of the task in a script without capitals: names look like words there, and pairs of characters overlap."""
    short: float = 1.5
    """How much better a tool fits a task of one or two words, of which one may be missing."""
    floor: float = 2.0
    """The least fitness of a tool that is found; `evals/catalog.py` shows the recall and the false offers of others."""


WEIGHTS = Weights()
"""The weights of every catalog."""
