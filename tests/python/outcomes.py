"""What a test expects or reports; needs no PyTorch."""

import os


def refusal(call, what="it"):
    """The sentence of what is refused; `what`: what is, should it be taken."""
    try:
        call()
    except (ValueError, RuntimeError, TypeError) as error:
        sentence = str(error)
        assert "\n" not in sentence, sentence
        return sentence
    raise AssertionError(f"{what} was taken")


def skip(why):
    if "PYTEST_CURRENT_TEST" in os.environ:
        import pytest

        pytest.skip(why)
    print("skipped:", why)
