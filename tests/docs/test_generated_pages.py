"""The pages that are made from code are in step with it, and say that they are made."""

import pytest

import pulse
from tests.docs.pages import Page, is_generated
from tools.generated_pages import PAGES, GeneratedPage
from tools.sdk_source import attributes


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_is_in_step_with_the_code(page: GeneratedPage) -> None:
    assert page.is_in_step(page.make()), "run: python3 dev.py docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_says_in_its_first_line_that_it_is_generated(page: GeneratedPage) -> None:
    assert is_generated(Page(page.path))


def test_reference_has_every_option_of_a_handler() -> None:
    """Also those that JobOptions has from the TypedDict that it extends."""
    named = [attribute.name for attribute in attributes(pulse.JobOptions)]
    assert sorted(named) == sorted(pulse.JobOptions.__annotations__)
