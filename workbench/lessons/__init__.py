"""Lessons: predictions that are locked in before the answer is shown, and exercises that the workbench itself checks.

In a notebook a prediction is a widget; students can also make a prediction in code. Lessons contain no answers: the
workbench finds each answer by opening, planning or running the program of the question.
"""

from workbench.lessons.exercises import Exercise, Verdict, Wrong
from workbench.lessons.notebook_text import Picture, Text, picture, trace
from workbench.lessons.predictions import Predict, PredictNumber

__all__ = ["Exercise", "Picture", "Predict", "PredictNumber", "Text", "Verdict", "Wrong", "picture", "trace"]
