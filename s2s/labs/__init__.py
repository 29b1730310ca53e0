"""Exercises of the notebooks in docs/labs: check answers, show solutions.

Example:
    >>> from s2s import labs
    >>> labs.check("attention.1", [0.0, 1.0, 2.0])
    attention.1: not yet. Your answer is [0.0, 1.0, 2.0]. Hint: divide each dot product by the square root of 4.
    >>> labs.check("attention.1", [0.0, 1.5, 1.0])
    attention.1: right.
"""

from s2s.labs.exercise import answer, check, solution, summary

__all__ = ["answer", "check", "solution", "summary"]
