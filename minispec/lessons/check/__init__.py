"""Checks for the exercises, one module a lesson. In a notebook: `check.NAME(function)` as the last line of a cell."""
