"""The list of users: its format, and refusals that never quote a secret."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulse_server.access.users import BadUsers, Role, User, parse_users, read_users_file
from tests.rows import each_row

# Written out: the workers of a parallel run must collect tests of the same names.
HASH = "$2b$04$abcdefghijklmnopqrstuuIQ9AyrP6qHpzJiEKQ5zxtEz3TPNwuMe"


def refused(text: str) -> str:
    with pytest.raises(BadUsers) as caught:
        parse_users(text, "USERS")
    return str(caught.value)


def test_users_are_separated_by_commas_and_are_admins_unless_a_role_is_given() -> None:
    assert parse_users("ann:one, bob:two:worker ,cid:thr ee", "USERS") == (
        User("ann", "one", Role.ADMIN),
        User("bob", "two", Role.WORKER),
        User("cid", "thr ee", Role.ADMIN),
    )


@each_row("role", list(Role))
def test_each_role_can_be_given(role: Role) -> None:
    assert parse_users(f"ann:one:{role}", "USERS") == (User("ann", "one", role),)


def test_bcrypt_hash_is_recognized_with_its_cost_and_may_have_a_role() -> None:
    (user,) = parse_users(f"ann:{HASH}:viewer", "USERS")
    assert (user.has_hash, user.bcrypt_cost, user.role) == (True, 4, Role.VIEWER)
    (plain,) = parse_users("ann:one", "USERS")
    assert (plain.has_hash, plain.bcrypt_cost) == (False, 0)


@each_row("entry", ["ann", "ann:", ":one", ":", "", "ann::worker"])
def test_malformed_entry_is_named_by_its_position(entry: str) -> None:
    sentence = refused(f"ok:fine,{entry},also:fine")
    assert sentence == "USERS, entry 2 is not of the form user:password or user:password:role."


def test_user_who_is_named_twice_is_refused_with_both_positions() -> None:
    assert refused("ann:one,bob:two,ann:three") == "USERS, entry 3: this user is named in entry 1 already."


def test_password_of_72_bytes_is_the_longest() -> None:
    assert parse_users(f"ann:{'ü' * 36}", "USERS")[0].secret == "ü" * 36
    assert refused(f"ann:{'ü' * 36}x").startswith("USERS, entry 1: the password is longer than 72 bytes")


@each_row(
    "secret",
    [
        "$2",
        "$2b$12$tooshort",
        HASH[:-1],
        HASH + "x",
        HASH.replace("$04$", "$03$"),
        HASH.replace("$04$", "$32$"),
        HASH.replace("$2b$", "$2c$"),
        HASH[:28] + "z" + HASH[29:],  # bcrypt refuses this salt when it is asked to check
    ],
)
def test_what_begins_like_a_hash_has_to_be_a_whole_one(secret: str) -> None:
    sentence = refused(f"ann:{secret}")
    assert sentence.startswith("USERS, entry 1: the password begins with $2 but is not a whole bcrypt hash.")


def test_colon_in_a_plain_password_is_not_taken_for_a_role() -> None:
    sentence = refused("ann:se:cret")
    assert "is not a role (admin, operator, producer, worker, viewer)" in sentence
    assert "has to be given as a bcrypt hash" in sentence


@each_row("name", ["a b", "a\tb", "a\x00b", "\ufeffann"])
def test_name_has_no_spaces_and_no_unprintable_characters(name: str) -> None:
    assert "a user's name has no spaces" in refused(f"{name}:one")


@given(st.text(max_size=200))
@example(f"ann:{HASH},ann:{HASH}")
@example("tweety-4711")
def test_any_text_is_read_or_refused_with_a_sentence_that_quotes_nothing(text: str) -> None:
    marked = text.replace("a", "tweety-4711")
    try:
        users = parse_users(marked, "USERS")
    except BadUsers as refusal:
        said = str(refusal)
    else:
        assert len({user.name for user in users}) == len(users) > 0
        said = repr([User("name", user.secret, user.role) for user in users])
    assert "tweety-4711" not in said


def test_file_has_one_user_a_line_with_comments_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# who gets in\n\nann:one\n   \n  # more\nbob:t#wo,:worker\n")
    assert read_users_file(file, "FILE") == (User("ann", "one"), User("bob", "t#wo,", Role.WORKER))


def test_line_of_the_file_is_named_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# who gets in\n\nann:one\nann:two\n")
    with pytest.raises(BadUsers, match="FILE, line 4: this user is named in line 3 already"):
        read_users_file(file, "FILE")


def test_file_without_users_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# no user\n")
    with pytest.raises(BadUsers, match="FILE names no user, so every caller would be refused"):
        read_users_file(file, "FILE")


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadUsers, match=r"FILE cannot be read: .*missing: No such file"):
        read_users_file(tmp_path / "missing", "FILE")
    binary = tmp_path / "binary"
    binary.write_bytes(b"ann:\xff\xfe")
    with pytest.raises(BadUsers, match="it is not UTF-8"):
        read_users_file(binary, "FILE")
