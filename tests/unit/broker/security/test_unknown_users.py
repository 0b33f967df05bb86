"""By salts and iterations nobody can find out which names are users."""

from collections import Counter

from tidelog.broker.security.unknown_users import UnknownUsers
from tidelog.protocol.scram import ScramCredential, ScramMechanism, credential_of

SHA_256, SHA_512 = ScramMechanism
NAMES = [f"name-{number}" for number in range(400)]
SECRET = credential_of(SHA_512, b"secret", b"salt", 4096)


def held(iterations: int, salt: bytes = bytes(32), mechanism: ScramMechanism = SHA_256) -> ScramCredential:
    return credential_of(mechanism, b"salted", salt, iterations)


def both(iterations: int) -> dict[ScramMechanism, ScramCredential]:
    return {mechanism: held(iterations, mechanism=mechanism) for mechanism in ScramMechanism}


def shown(unknown: UnknownUsers, mechanism: ScramMechanism = SHA_256) -> dict[str, tuple[int, int]]:
    made_up = {name: unknown.credential(name, mechanism, None) for name in NAMES}
    return {name: (each.iterations, len(each.salt)) for name, each in made_up.items()}


def test_unknown_names_have_the_iterations_and_salt_lengths_of_users_as_often_as_users_have_them() -> None:
    users = [{SHA_256: held(4096)}] + [{SHA_256: held(8192, bytes(64))}] * 3
    found = Counter(shown(UnknownUsers(users, SECRET)).values())
    assert found.keys() == {(4096, 32), (8192, 64)}
    assert 60 < found[4096, 32] < 140


def test_a_name_always_gets_the_same_and_few_names_change_with_the_users() -> None:
    users = [{SHA_256: held(4096 + number % 4)} for number in range(40)]
    before = UnknownUsers(users, SECRET)
    again = UnknownUsers(list(reversed(users)), SECRET)
    assert [before.credential(name, SHA_256, None) for name in NAMES] == [
        again.credential(name, SHA_256, None) for name in NAMES
    ]
    after = shown(UnknownUsers([*users, {SHA_256: held(9999)}], SECRET))
    assert 0 < sum(after[name] != was for name, was in shown(before).items()) < 40
    assert len({before.credential(name, SHA_256, None).salt for name in NAMES}) == len(NAMES)


def test_without_users_it_looks_as_what_the_command_makes() -> None:
    assert set(shown(UnknownUsers([], SECRET)).values()) == {(4096, 32)}
    assert UnknownUsers([], SECRET).strongest("name") == SHA_512


def test_the_mechanisms_of_an_unknown_name_fit_together_as_those_of_users_do() -> None:
    unknown = UnknownUsers([both(4096), both(8192)], SECRET)
    assert shown(unknown, SHA_256) == shown(unknown, SHA_512)


def test_a_mechanism_that_a_user_lacks_looks_as_it_does_for_an_unknown_name() -> None:
    """A user with SHA-256 only is like an unknown name with the shape of that user."""
    users = [{SHA_256: held(4096)}, {SHA_512: held(9000, mechanism=SHA_512)}]
    unknown = UnknownUsers(users, SECRET)
    assert unknown.credential("alice", SHA_512, users[0]).iterations == 9000
    assert {each for each, _ in shown(unknown, SHA_512).values()} == {9000}
    assert {unknown.strongest(name) for name in NAMES} == {SHA_256, SHA_512}


def test_a_salt_of_letters_and_digits_has_made_up_ones_like_it() -> None:
    """Java's AdminClient makes such salts."""
    unknown = UnknownUsers([{SHA_256: held(4096, b"3k9zq0x7w1c5v8b2n6m4l0p9ou")}], SECRET)
    for name in NAMES[:20]:
        salt = unknown.credential(name, SHA_256, None).salt
        assert len(salt) == 26
        assert set(salt) <= set(b"0123456789abcdefghijklmnopqrstuvwxyz")
