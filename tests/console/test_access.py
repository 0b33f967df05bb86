"""Users and ACLs: the page makes a user who can sign in, and says why she is refused until an ACL allows it."""

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.conformance.secured import AUTHORIZER, PASSWORD, add_user
from tests.console.site import Console, assert_accessible, console_with, sign_in
from tidelog.client import Admin, BrokerError, Producer

if TYPE_CHECKING:
    from playwright.sync_api import Page

HER_PASSWORD = "correct horse: ü"
secured = console_with(
    listeners="SASL_PLAINTEXT://127.0.0.1:0",
    authorizer_class_name=AUTHORIZER,
    super_users="User:admin",
)


@pytest.fixture(scope="module")
def console(secured: Console) -> Console:
    secured.run(add_user(secured.broker, "admin"))
    secured.run(secured.broker.services.topics.create("orders"))
    return secured
