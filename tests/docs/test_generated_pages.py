"""The pages that are made from code are in step with it, and say that they are made."""

import pytest

from tests.docs.pages import Page, is_generated
from tools.generated_pages import PAGES, GeneratedPage


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_is_in_step_with_the_code(page: GeneratedPage) -> None:
    assert page.is_in_step(page.make()), "run: python3 dev.py docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_says_in_its_first_line_that_it_is_generated(page: GeneratedPage) -> None:
    assert is_generated(Page(page.path))
