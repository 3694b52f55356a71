"""For every run of pytest, that of a single notebook too."""


def pytest_collection_modifyitems(items):
    """nbval gives a cell 5 seconds between two outputs, which is short for a busy machine, and has no option for it."""
    for item in items:
        if hasattr(item, "output_timeout"):
            item.output_timeout = 60
