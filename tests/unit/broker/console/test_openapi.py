"""The OpenAPI file says of each route what its declaration says."""

from typing import Annotated, Any, TypedDict

import schemathesis
from msgspec import Meta

from tidelog.broker.console.openapi import ITEM, describe
from tidelog.broker.console.route import EVENT_STREAM, ApiRoute
from tidelog.broker.console.routes import ROUTES
from tidelog.broker.console.shapes import Listing


class Asked(Listing, frozen=True, kw_only=True):
    topic: str
    count: Annotated[int, Meta(ge=1, description="How many.")]


class Done(TypedDict):
    rows: list[str]
    note: str | None


async def handle(*_: Any) -> None:
    raise AssertionError("it is only described")


PATH = "/api/v1/topics/{topic}/x"
MADE = describe(
    [
        ApiRoute("GET", PATH, handle, Asked, Done, "Reads."),
        ApiRoute("PUT", PATH, handle, Asked, Done, "Changes."),
        ApiRoute("GET", f"{PATH}/live", handle, Asked, Done, "Follows.", stream=EVENT_STREAM),
    ],
    "1.2",
)


def test_parameters_are_in_the_path_the_query_or_the_body() -> None:
    read, change = MADE["paths"][PATH]["get"], MADE["paths"][PATH]["put"]
    assert {(each["name"], each["in"], each["required"]) for each in read["parameters"]} == {
        ("topic", "path", True),
        ("count", "query", True),
        ("offset", "query", False),
        ("limit", "query", False),
    }
    assert [each["name"] for each in change["parameters"]] == ["topic"]
    body = change["requestBody"]["content"]["application/json"]["schema"]
    assert (body["required"], sorted(body["properties"])) == (["count"], ["count", "limit", "offset"])
    assert body["properties"]["count"] == {"type": "integer", "minimum": 1, "description": "How many."}
    assert body["additionalProperties"] is False


def test_an_answer_has_the_fields_of_its_type_and_no_other() -> None:
    reference = MADE["paths"][PATH]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    done = MADE["components"]["schemas"][reference["$ref"].rpartition("/")[2]]
    assert (sorted(done["properties"]), sorted(done["required"])) == (["note", "rows"], ["note", "rows"])
    assert done["additionalProperties"] is False
    stream = MADE["paths"][f"{PATH}/live"]["get"]["responses"]["200"]["content"][EVENT_STREAM]
    assert stream[ITEM] == reference
    problem = MADE["paths"][PATH]["get"]["responses"]["403"]["content"]["application/json"]["schema"]
    assert problem == {"$ref": "#/components/schemas/Problem"}


def test_the_file_is_openapi() -> None:
    for document in (MADE, describe(ROUTES, "0")):
        schemathesis.openapi.from_dict(document).validate()
