"""The methods of clients, which are written from the table of functions."""

from project.client_methods import PATH, source


def test_the_methods_are_those_of_the_table() -> None:
    assert PATH.read_text() == source(), "run `make functions`, and commit what it changes"
