"""A refresh keeps the state of the user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from playwright.async_api import Page

from tests.ui.dashboards import DashboardUnderTest, dashboard_under_test

# Puts the first markup into the page, does something to it, and turns it into the second.
_MORPH = """([before, after, act, ask, asked]) => {
  const parser = new DOMParser();
  const parse = (markup) => parser
    .parseFromString(`<div id="under-test">${markup}</div>`, "text/html").body.firstChild;
  document.getElementById("under-test")?.remove();
  document.body.append(document.importNode(parse(before), true));
  const root = document.getElementById("under-test");
  const memory = new Function("root", act)(root);
  window.pulseMorph(root, parse(after), { asked });
  return new Function("root", "memory", ask)(root, memory);
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def dashboard_of_nothing() -> AsyncIterator[DashboardUnderTest]:
    """A page that does not exist can be had without a pulsed."""
    async with dashboard_under_test("127.0.0.1:1") as dashboard:
        yield dashboard


@pytest_asyncio.fixture(loop_scope="session")
async def blank(kept_page: Page, dashboard_of_nothing: DashboardUnderTest) -> Page:
    await kept_page.goto(f"{dashboard_of_nothing.url}/nowhere-at-all")
    return kept_page


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def expect_the_missing_page(complaints: Any) -> None:
    complaints.expect("404")


async def morph(page: Page, before: str, after: str, *, act: str = "", ask: str, asked: bool = False) -> Any:
    """Return the result of `ask` after `act` and the morph. `asked`: the page was requested by the user."""
    return await page.evaluate(_MORPH, [before, after, act, ask, asked])


async def test_what_did_not_change_stays_the_same_node(blank: Page) -> None:
    assert await morph(
        blank,
        '<p id="a">one</p><p id="b">two</p>',
        '<p id="a">one</p><p id="b">three</p>',
        act="return [root.children[0], root.children[1]]",
        ask="""const [first, second] = root.children;
               return first === memory[0] && second === memory[1] && second.innerText === "three";""",
    )


async def test_rows_move_and_are_not_rebuilt(blank: Page) -> None:
    assert await morph(
        blank,
        '<p id="a">a</p><p id="b">b</p><p id="c">c</p>',
        '<p id="new">new</p><p id="c">c</p><p id="a">a</p>',
        act="return [root.querySelector('#a'), root.querySelector('#c')]",
        ask="""return [...root.children].map((row) => row.id).join() === "new,c,a"
               && root.querySelector('#a') === memory[0] && root.querySelector('#c') === memory[1]""",
    )


async def test_typed_text_is_kept(blank: Page) -> None:
    assert (
        await morph(
            blank,
            '<input id="i" value="server"><textarea id="t">server</textarea>',
            '<input id="i" value="newer"><textarea id="t">newer</textarea>',
            act="root.querySelector('#i').value = 'typed'; root.querySelector('#t').value = 'typed';",
            ask="return root.querySelector('#i').value + root.querySelector('#t').value",
        )
        == "typedtyped"
    )


async def test_untouched_control_follows_the_server(blank: Page) -> None:
    assert (
        await morph(
            blank,
            '<input id="i" value="old"><select id="s"><option selected>a</option><option>b</option></select>',
            '<input id="i" value="new"><select id="s"><option>a</option><option selected>b</option></select>',
            ask="return root.querySelector('#i').value + root.querySelector('#s').value",
        )
        == "newb"
    )


async def test_focus_and_cursor_stay(blank: Page) -> None:
    assert await morph(
        blank,
        '<p>1</p><input id="i" value="abcdef">',
        '<p>2</p><p>3</p><input id="i" value="abcdef">',
        act="const i = root.querySelector('#i'); i.focus(); i.setSelectionRange(2, 4);",
        ask="""const i = root.querySelector('#i');
               return [document.activeElement === i, i.selectionStart, i.selectionEnd]""",
    ) == [True, 2, 4]


async def test_what_was_opened_stays_open_and_what_was_closed_stays_closed(blank: Page) -> None:
    assert await morph(
        blank,
        '<details id="a"><summary>x</summary>1</details><details id="b" open><summary>x</summary>1</details>',
        '<details id="a"><summary>x</summary>2</details><details id="b" open><summary>x</summary>2</details>',
        act="root.querySelector('#a').open = true; root.querySelector('#b').open = false;",
        ask="return [root.querySelector('#a').open, root.querySelector('#b').open]",
    ) == [True, False]


_ROW = '<tr id="{0}"><td><input type="checkbox" id="box-{0}"></td><td>{1}</td></tr>'


def rows(*pairs: tuple[str, str]) -> str:
    return f"<table><tbody data-rows>{''.join(_ROW.format(*pair) for pair in pairs)}</tbody></table>"


async def test_rows_neither_come_nor_go_while_one_is_selected(blank: Page) -> None:
    assert await morph(
        blank,
        rows(("a", "1"), ("b", "1")),
        rows(("c", "2"), ("b", "2")),
        act="root.querySelector('#box-a').checked = true;",
        ask="""return [[...root.querySelectorAll('tr')].map((row) => row.id + row.innerText.trim()).join(),
                       root.querySelector('#box-a').checked,
                       root.querySelector('tbody').hasAttribute('data-held')]""",
    ) == ["a1,b2", True, True]


async def test_rows_flow_again_once_nothing_is_selected(blank: Page) -> None:
    assert (
        await morph(
            blank,
            rows(("a", "1"), ("b", "1")),
            rows(("c", "2"), ("b", "2")),
            act="root.querySelector('tbody').setAttribute('data-held', '');",
            ask="""return [...root.querySelectorAll('tr')].map((row) => row.id).join()
                   + root.querySelector('tbody').hasAttribute('data-held')""",
        )
        == "c,bfalse"
    )


async def test_selected_text_stays_selected(blank: Page) -> None:
    assert (
        await morph(
            blank,
            '<p id="a">a job id</p><p id="b">1</p>',
            '<p id="n">new</p><p id="a">a job id</p><p id="b">2</p>',
            act="getSelection().selectAllChildren(root.querySelector('#a'));",
            ask="return getSelection().toString()",
        )
        == "a job id"
    )


async def test_message_stays_until_the_next_page(blank: Page) -> None:
    assert (
        await morph(
            blank,
            '<div id="notices" data-keep><p>Done.</p></div>',
            '<div id="notices" data-keep></div>',
            ask="return root.innerText.trim()",
        )
        == "Done."
    )


async def test_drawing_that_is_new_is_a_drawing(blank: Page) -> None:
    assert await morph(
        blank,
        "<svg></svg>",
        '<svg><rect width="1" height="1"></rect></svg>',
        ask="return root.querySelector('rect') instanceof SVGRectElement",
    )


async def test_attributes_that_are_gone_go(blank: Page) -> None:
    assert await morph(
        blank,
        '<button id="b" disabled class="x">go</button>',
        '<button id="b">go</button>',
        ask="const b = root.querySelector('#b'); return [b.disabled, b.hasAttribute('class')]",
    ) == [False, False]


async def test_page_that_was_asked_for_is_as_it_was_sent(blank: Page) -> None:
    """Else a filter that was removed would stay in its field, and be sent again."""
    shown = await morph(
        blank,
        asked=True,
        before='<input id="i" value="old"><details id="d"><summary>x</summary></details>'
        '<input type="checkbox" id="c"><select id="s"><option>a</option><option>b</option></select>',
        after='<input id="i" value=""><details id="d"><summary>x</summary></details>'
        '<input type="checkbox" id="c"><select id="s"><option>a</option><option selected>b</option></select>',
        act="""root.querySelector('#i').value = 'typed'; root.querySelector('#d').open = true;
               root.querySelector('#c').checked = true;""",
        ask="""const at = (id) => root.querySelector(id);
               return [at('#i').value, at('#d').open, at('#c').checked, at('#s').value]""",
    )
    assert shown == ["", False, False, "b"]


async def test_untouched_selection_follows_the_server(blank: Page) -> None:
    assert (
        await morph(
            blank,
            '<select id="s"><option>any</option><option>b</option></select>',
            '<select id="s"><option>any</option><option selected>b</option></select>',
            ask="return root.querySelector('#s').value",
        )
        == "b"
    )
