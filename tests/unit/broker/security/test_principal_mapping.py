"""Rules that name the user of a certificate (KIP-371): the cases of Kafka's documentation, and more."""

import pytest

from tidelog.broker.security.principal_mapping import PrincipalMapping
from tidelog.protocol.settings import ConfigError

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=JavaSoft,dc=domain1,dc=domain2", "DUKE@JAVASOFT"),
        ("OU=JavaSoft,C=US", "OU=JavaSoft,C=US"),
    ],
)
def test_the_first_rule_that_fits_names_the_user(subject: str, name: str) -> None:
    assert PrincipalMapping(DOCUMENTED).name(subject) == name


def test_a_subject_that_no_rule_fits_has_no_user() -> None:
    mapping = PrincipalMapping("RULE:CN=(\\w+)/$1/")
    assert mapping.name("CN=alice") == "alice"
    assert mapping.name("CN=alice,O=x") is None  # The pattern has to match all of it.
    assert PrincipalMapping("").name("CN=alice") is None


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("RULE:CN=(.*),O=(?P<where>.*)/${where}.$1/", "x/y.Alice, B"),
        ("RULE:CN=(.*),O=x\\/y/a\\/\\$1-$1/L", "a/$1-alice, b"),
        ("RULE:CN=(.*),O=.*/$1$7/U", "ALICE, B$7"),
        ("RULE:none//,RULE:.*,O=x.y/same/", "same"),
    ],
)
def test_replacements_have_kafka_s_references_and_escapes(rule: str, name: str) -> None:
    assert PrincipalMapping(rule).name("CN=Alice, B,O=x/y") == name


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ("default", "expected DEFAULT and RULE:pattern/replacement/"),
        ("DEFAULT RULE:a/b/", "expected DEFAULT and RULE"),
        ("RULE:a/b", "got 'RULE:a/b'"),
        ("DEFAULT,RULE:a/b/X", "got 'RULE:a/b/X'"),
        ("RULE:(a/b/", "pattern '(a', which is not in RE2's syntax"),
        ("RULE:(?=a)a/b/", "not in RE2's syntax"),
    ],
)
def test_what_is_no_rule_is_refused_with_what_was_expected(rules: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PrincipalMapping(rules)
    assert complaint in str(caught.value)
