"""Prompts for training a drafter and for testing it: forms × subjects, written here, so that anybody can repeat the figures.

Every sixth subject of each kind is held out, in turn for calibration and for the test: neither speaks of anything that a prompt
of the training does, nor of what the other does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

HELD_OUT_EVERY = 6


class Purpose(StrEnum):
    LEARN = "learn"
    CALIBRATE = "calibrate"
    TEST = "test"


@dataclass(frozen=True)
class PromptKind:
    """Forms with one gap, what may stand in it, and the share of such prompts."""

    name: str
    subjects: tuple[str, ...]
    forms: tuple[str, ...]
    share: float


def draft_prompts(count: int, seed: int, purpose: Purpose) -> list[str]:
    """About `count` different prompts, the same for the same seed."""
    draw = random.Random(f"{seed} {purpose is not Purpose.LEARN}")
    chosen: list[str] = []
    for kind in KINDS:
        subjects = [subject for place, subject in enumerate(kind.subjects) if _purpose_of(place) is purpose]
        pairs = [form.format(subject) for subject in subjects for form in kind.forms]
        draw.shuffle(pairs)
        chosen += pairs[: round(count * kind.share)]
    draw.shuffle(chosen)
    return chosen


def _purpose_of(place: int) -> Purpose:
    """Of the subject at `place` of its kind."""
    if place % HELD_OUT_EVERY != HELD_OUT_EVERY - 1:
        return Purpose.LEARN
    return Purpose.TEST if place // HELD_OUT_EVERY % 2 else Purpose.CALIBRATE


_TOPICS = (
    "photosynthesis;the water cycle;volcanoes;the Roman Empire;black holes;honey bees;the printing press;electric cars;"
    "solar panels;the human heart;chess;jazz music;the Great Barrier Reef;bread making;the French Revolution;vaccines;gravity;"
    "the internet;coffee;whales;mountain climbing;the moon landing;plate tectonics;Shakespeare;machine learning;yoga;democracy;"
    "the Amazon rainforest;recycling;bicycles;ancient Egypt;the immune system;inflation;wind turbines;penguins;gardening;"
    "the Silk Road;DNA;basketball;public libraries;tea;earthquakes;the piano;supply and demand;sleep;dolphins;hydrogen;"
    "the Eiffel Tower;oil painting;budgeting;time management;wolves;the stock market;glaciers;vitamins;train travel;"
    "lighthouses;origami;the periodic table;cheese;rainbows;job interviews;castles;beekeeping;camping;the Pacific Ocean;poetry;"
    "robots;elephants;healthy breakfasts;meditation;the Olympic Games;the Great Wall of China;hurricanes;butterflies;"
    "the telephone;nuclear power;astronauts;football;classical music;coral;cactuses;the American Civil War;antibiotics;"
    "magnetism;email;chocolate;sharks;swimming;the space shuttle;fossils;Leonardo da Vinci;computer networks;dance;elections;"
    "deserts;composting;airplanes;ancient Greece;allergies;interest rates;dams;owls;houseplants;the Vikings;evolution;tennis;"
    "museums;rice;tsunamis;the guitar;taxes;dreams;octopuses;oxygen;the Statue of Liberty;photography;saving money;teamwork;"
    "bears;insurance;rivers;protein;subways;bridges;paper;chemical reactions;wine;clouds;public speaking;cathedrals;ants;"
    "hiking;the Arctic;theater;drones;giraffes;lunch boxes;stress;the World Cup;the Renaissance;cells;fire safety;"
    "steam engines;the solar system;telescopes;spiders;radio;batteries;geothermal energy;the lungs;card games;opera;mangroves;"
    "pancakes;the Cold War;blood donation;friction;search engines;sugar;seals;surfing;satellites;tides;Mozart;databases;ballet;"
    "good manners;savannas;water treatment;sailing ships;the Aztecs;the common cold;unemployment;tunnels;parrots;"
    "vegetable soup;the Middle Ages;genetics;volleyball;bookstores;potatoes;avalanches;the violin;credit cards;memory;crabs;"
    "carbon;the Golden Gate Bridge;sculpture;planning a party;leadership;foxes;mortgages;lakes;calcium;buses;windmills;glass;"
    "acids;salt;fog;negotiation;pyramids;moths;fishing;Antarctica;film making;smart phones;lions;school lunches;patience;"
    "the Tour de France;spring;the metric system;hot air balloons;national parks;kindness;mathematics;frogs;cooking pasta;"
    "knitting;maps"
)
_QUESTIONS = (
    "What is {0}?;Explain {0} to a ten-year-old child.;Write a short paragraph about {0}.;Give me five facts about {0}.;"
    "What are the advantages and disadvantages of {0}?;Write a short story about {0}.;"
    "Tell me why {0} matters, in three sentences.;Write an email to my teacher in which I propose a project on {0}.;"
    "Make a numbered list of questions about {0} for a quiz.;Write a poem about {0}.;"
    "Write a step-by-step plan for a lesson on {0}.;Summarize the most important things to know about {0}.;"
    "Write a dialogue between two friends who talk about {0}.;"
    "What would you recommend to somebody who wants to learn about {0}?"
)
_TASKS = (
    "adds two numbers;reverses a string;checks whether a number is prime;returns the largest element of a list;"
    "counts the words of a text;sorts a list of numbers;computes the factorial of a number;removes duplicates from a list;"
    "checks whether a word is a palindrome;converts Celsius to Fahrenheit;merges two dictionaries;"
    "reads a file and prints its lines;computes the average of a list;finds the longest word of a sentence;"
    "computes the Fibonacci numbers;counts the vowels of a string;flattens a nested list;swaps two variables;"
    "generates a random password;computes the greatest common divisor;checks whether a year is a leap year;"
    "squares every number of a list;finds the second largest number;capitalizes every word of a sentence;"
    "multiplies two matrices;counts how often each letter occurs;rotates a list by k places;computes the power of a number;"
    "finds the smallest element of a list;joins a list of words with commas;converts kilometers to miles;sorts words by length;"
    "checks whether two strings are anagrams;computes the sum of the digits of a number;reverses a list;finds a substring;"
    "computes the area of a circle;converts a number to binary;removes the spaces of a string;counts the lines of a file;"
    "finds the common elements of two lists;implements a stack;implements binary search;prints a multiplication table;"
    "checks whether a list is sorted;computes the median of a list;splits a text into sentences;replaces a word in a text;"
    "validates an email address;computes compound interest;prints a triangle of stars;counts the even numbers of a list;"
    "converts a string to a list of characters;parses a date;rolls two dice;implements a queue;"
    "picks a random element of a list;computes the distance between two points;transposes a matrix;writes a list to a file"
)
_CODE = (
    "Write a Python function that {0}.;Write a Python function that {0}, with a docstring and an example.;"
    "Show me JavaScript code that {0}.;Write a Java method that {0}.;Write a C function that {0} and explain it."
)
_THINGS = (
    "fruits;European capitals;programming languages;musical instruments;kitchen tools;sports;dog breeds;"
    "animals that live in the sea;planets and moons;classic novels;healthy snacks;board games;vegetables;American states;"
    "inventors;kinds of trees;birthday gifts;office supplies;famous painters;colors;birds;breakfast dishes;rivers;occupations;"
    "desserts;Asian capitals;operating systems;card games;garden tools;water sports;cat breeds;insects;constellations;"
    "fairy tales;soups;video games;spices;countries of Africa;scientists;flowers;party games;school subjects;famous composers;"
    "shapes;reptiles;lunch dishes;mountains;hobbies;vehicles;kinds of cheese;pieces of furniture;web browsers;"
    "chemical elements;kinds of weather;morning habits;ways to save water;materials;fabrics;holidays;monuments;kinds of pasta;"
    "safety rules;camping items;fish"
)
_LISTS = (
    "List ten {0}.;Make a bulleted list of {0} with one sentence each.;Make a table of five {0} in Markdown.;"
    "Name five {0} and say what is special about each."
)
_OBJECTS = (
    "a person;a book;a car;a recipe;a city;a song;a flight;a movie;a hotel;a weather report;a product in a shop;a student;"
    "a company;a phone call;a football match;a pet;a calendar event;an order;a restaurant;a laptop;a train ticket;a playlist;"
    "a museum;a bank account;an email;a house for rent;a podcast;a workout;a teacher;a concert;a doctor's appointment;"
    "a tennis match;a garden;a meeting;an invoice;a newspaper article;a video game;a bicycle;a planet;a job offer;"
    "a shopping list;a university course;a bus stop;a painting;a sensor reading;a chat message"
)
_JSON = (
    "Return a JSON object that describes {0}.;Give me an example of {0} as JSON with at least four keys.;"
    "Write a JSON array of three objects, each of which describes {0}.;Write a YAML document that describes {0}."
)
_PLACES = (
    "Paris;Tokyo;Cairo;Lima;Oslo;Nairobi;Berlin;Sydney;Boston;Mumbai;Rome;Dublin;Madrid;Athens;Toronto;Seoul;Vienna;Helsinki;"
    "Lagos;Chicago;Prague;Lisbon;Warsaw;Bangkok;Denver;Quito;Zurich;Budapest;Jakarta;Seattle;Naples;Hanoi;Bogota;Stockholm;"
    "Dubai;Glasgow"
)
_CALLS = (
    'You have the function get_weather(city, unit). Write the call as JSON with the keys "name" and "arguments" for {0}.;'
    "You have the function find_hotel(city, nights, stars). Answer only with a JSON call of it for two nights in {0}.;"
    "Write a curl command that asks an API for the population of {0}, and an example of its JSON answer."
)

KINDS = (
    PromptKind("question", tuple(_TOPICS.split(";")), tuple(_QUESTIONS.split(";")), 0.53),
    PromptKind("code", tuple(_TASKS.split(";")), tuple(_CODE.split(";")), 0.19),
    PromptKind("list", tuple(_THINGS.split(";")), tuple(_LISTS.split(";")), 0.12),
    PromptKind("json", tuple(_OBJECTS.split(";")), tuple(_JSON.split(";")), 0.11),
    PromptKind("call", tuple(_PLACES.split(";")), tuple(_CALLS.split(";")), 0.05),
)
